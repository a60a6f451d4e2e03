"""Both topics, read from Kafka: committed records only, from the beginning to an end fixed at the start.

The judge decides which partition it reads next and must not have to hold what others delivered meanwhile, so partitions
have consumers of their own, or share them (`streaming.verify.sources.feed`). librdkafka prefetches a bounded number of
bytes for each in the background, so memory does not grow with the topics.

What is shared with the service ends at the connection (`streaming.runtime`: settings, watermarks, errors).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import AdminClient

from schemas.errors import Code, TopicError
from schemas.records import BARRIER_HEADER, EPOCH_HEADER, RecordId
from streaming.kafka.clients import KafkaSettings, translate
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.kafka.topics import Watermarks, admin, cleanup_policy, watermarks
from streaming.verify.dead_letters import Letter
from streaming.verify.findings import Place
from streaming.verify.history import Entry, Source
from streaming.verify.sources.beside import DataSource, Merged
from streaming.verify.sources.ends import Ends, await_decided
from streaming.verify.sources.feed import Feed, feeds
from streaming.verify.sources.shortened import Shortened, shared_since

OnRead = Callable[[int], None]
"""Called with how many more offsets were passed, transaction markers and aborted records included."""

_PREFETCH_KIB = 32_768
"""For all consumers together."""
_NO_HEADERS: Mapping[str, bytes] = MappingProxyType({})


class PartitionSource:
    """One partition from offset `start` up to `end`, which `extend` can move. Its feed is not closed with it."""

    def __init__(
        self,
        feed: Feed,
        partition: int,
        marks: Watermarks,
        *,
        on_read: OnRead,
        ends: Ends,
        left_out: frozenset[int] = frozenset(),
    ) -> None:
        self._feed, self._partition, self._left_out = feed, partition, left_out
        self._next, self._end = marks.earliest, marks.stable
        self._on_read, self._ends = on_read, ends
        self._fetched: list[Message] = []  # in reverse, so that the next one is popped from the end

    def entries(self) -> Iterator[Entry]:
        """The committed records up to the end, from where the last call stopped.

        Raises: EnvironmentProblem(BROKER_UNREACHABLE) when the broker sends nothing for `wait_s`.
        """
        fetched = self._fetched
        while True:
            while fetched:
                message = fetched[-1]
                offset: Any = message.offset()
                if offset >= self._end:
                    return
                fetched.pop()
                if offset in self._left_out:
                    continue
                headers = message.headers()
                found = _headers(headers) if headers else _NO_HEADERS
                yield Entry(
                    offset,
                    message.key(),
                    message.value(),
                    found.get(BARRIER_HEADER),
                    epoch=found.get(EPOCH_HEADER),
                )
            if self._next >= self._end:
                return
            self._await_more()

    def extend(self) -> bool:
        """Move the end to where it is now, once more is committed; False if that takes too long. See `Ends.beyond`."""
        end = self._ends.beyond(self._feed.topic, self._partition, self._end)
        self._end = end or self._end
        return end is not None

    def settle(self) -> bool:
        """Move the end behind all that is in the partition now, once that is decided; whether it has moved."""
        before, self._end = self._end, max(self._end, self._ends.decided(self._feed.topic, self._partition))
        return self._end > before

    def _await_more(self) -> None:
        deadline = time.monotonic() + self._feed.settings.wait_s
        while not self._fetch():
            if time.monotonic() > deadline:
                what = f"{self._feed.topic}-{self._partition}"
                raise translate(KafkaError(KafkaError._TIMED_OUT), self._feed.settings, what=what)

    def _fetch(self) -> bool:
        """Take what has come; whether anything has, be it only the end of the partition."""
        place = f"{self._feed.topic}-{self._partition}@{self._next}"
        chunk = self._feed.take(self._partition, where=place)
        records = []
        reached = self._next
        for message in chunk:
            offset: Any = message.offset()
            if message.error() is None:
                records.append(message)
                reached = offset + 1
            else:
                reached = max(reached, offset)  # only markers or aborted records lie before the end
        if records:
            records.reverse()
            self._fetched[:0] = records
        self._on_read(reached - self._next)
        self._next = reached
        return bool(chunk)


def _headers(headers: Any) -> dict[str, bytes]:
    """Each by its first."""
    return {
        name: value.encode() if isinstance(value, str) else value or b"" for name, value in reversed(headers)
    }


class TopicPair:
    """The sources of an upstream and an output, a context manager.

    `barriers` are the barrier topics of the two, where they have one. The output's ends are fixed before the
    upstream's, and those of a barrier topic before those of its data, so every barrier of the output lies within the
    upstream's ends. `settle_s` is how long ends are waited for to move, in all. Records of the upstream that are
    `left_out`, (partition, offset), are as good as not there, and so are those before `begins`, one offset a partition.
    Where barriers beside the data were deleted, both begin with the oldest one that all partitions have.

    Raises: TopicError for a topic that is missing, compacted, or whose beginning is gone: an output can't be
    judged by a part of its upstream.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        upstream: str,
        output: str,
        *,
        on_read: OnRead,
        settle_s: float,
        left_out: frozenset[RecordId] = frozenset(),
        barriers: tuple[str | None, str | None] = (None, None),
        begins: Sequence[int] = (),
    ) -> None:
        client, ends = admin(settings), Ends(settings, settle_s)
        _refuse_compacted(client, settings, (upstream, output))

        def marks_of(topic: str | None) -> tuple[Watermarks, ...]:
            return () if topic is None else watermarks(settings, topic, client=client)

        of_upstream, of_output = barriers
        marks = [marks_of(of_output)]
        if of_output is not None:
            await_decided(settings, output)
        marks += [_whole(output, marks_of(output)), marks_of(of_upstream)]
        self.since = shared_since(settings, (of_output, marks[0]), (of_upstream, marks[2]))
        """The barrier to begin with, where those before it were deleted."""
        marks.append(_whole(upstream, watermarks(settings, upstream, client=client), begins))
        self.offsets = sum(each.stable - each.earliest for topic in marks for each in topic)
        read = [topic for topic in marks if topic]
        self._feeds: list[Feed] = []

        def sources(
            topic: str | None, marks: tuple[Watermarks, ...], without: frozenset[RecordId] = frozenset()
        ) -> list[PartitionSource]:
            if topic is None:
                return []
            starts = [each.earliest for each in marks]
            of_topic = feeds(settings, topic, starts, prefetch_kib=_PREFETCH_KIB // len(read))
            self._feeds += dict.fromkeys(of_topic)
            return [
                PartitionSource(
                    feed,
                    partition,
                    each,
                    on_read=on_read,
                    ends=ends,
                    left_out=frozenset(offset for number, offset in without if number == partition),
                )
                for partition, (feed, each) in enumerate(zip(of_topic, marks, strict=True))
            ]

        topics = [of_output, output, of_upstream, upstream]
        without = [frozenset[RecordId]()] * 3 + [left_out]
        every_source = list(map(sources, topics, marks, without))
        self.output = self._shortened(_merged(every_source[1], of_output, every_source[0]), lists=True)
        self.upstream = self._shortened(
            _merged(every_source[3], of_upstream, every_source[2], begins), lists=False
        )

    def _shortened(self, sources: Sequence[Source], *, lists: bool) -> Sequence[Source]:
        if self.since is None:
            return sources
        return [Shortened(source, self.since, lists) for source in sources]

    def __enter__(self) -> TopicPair:
        return self

    def __exit__(self, *_: object) -> None:
        for feed in self._feeds:
            feed.close()


def _merged(
    data: Sequence[DataSource], barriers: str | None, beside: Sequence[Source], begins: Sequence[int] = ()
) -> Sequence[Source]:
    """The sources of a topic, with those of its barriers if they stand beside it."""
    if barriers is None:
        return data
    pairs = enumerate(zip(data, beside, strict=True))
    return [
        Merged(own, closing, barriers, number, begin=begins[number] if begins else 0)
        for number, (own, closing) in pairs
    ]


def read_letters(settings: KafkaSettings, topic: str) -> list[Letter]:
    """The records of a dead-letter topic, as of now. Raises: EnvironmentProblem, TopicError."""
    letters = []
    with RangeReader(settings) as reader:
        ranges = {p: (marks.earliest, marks.stable) for p, marks in enumerate(reader.watermarks(topic))}
        for chunk in reader.read(topic, ranges):
            for message in chunk:
                where = Place(topic, *located(message))
                place, code = (
                    (header_of(message, name) or b"").decode("utf-8", "replace") for name in ("place", "code")
                )
                letters.append(Letter(where, place, _bytes(message.key()), _bytes(message.value()), code))
    return letters


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _whole(topic: str, marks: tuple[Watermarks, ...], begins: Sequence[int] = ()) -> tuple[Watermarks, ...]:
    """The watermarks from the first record on that counts. Raises: TopicError(DATA_LOST)."""
    wanted = tuple(begins) or (0,) * len(marks)
    for partition, (each, first) in enumerate(zip(marks, wanted, strict=True)):
        if each.earliest > first:
            raise TopicError(
                Code.DATA_LOST,
                where=f"{topic}-{partition}@{each.earliest}",
                found=f"a partition that begins at offset {each.earliest}",
                start=f"offset {first}",
            )
    return tuple(replace(each, earliest=first) for each, first in zip(marks, wanted, strict=True))


def _refuse_compacted(client: AdminClient, settings: KafkaSettings, topics: tuple[str, ...]) -> None:
    for topic in topics:
        policy = cleanup_policy(settings, topic, client=client)
        if policy is not None and "compact" in policy:
            raise TopicError(
                Code.COMPACTED_INPUT,
                where=topic,
                found=f"cleanup.policy={policy}",
                expected="every record: no interval can be judged of which compaction may have taken some",
                next_step="judge by the table: `backfill consume --fold` prints what the output adds up to",
            )
