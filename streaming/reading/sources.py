"""Topics read from Kafka, partition by partition: committed records only, up to ends that can be moved.

Who reads decides which partition comes next and must not have to hold what others delivered meanwhile, so partitions
have consumers of their own, or share them: librdkafka starts some threads for each consumer, and Python has room for a
thousand of them. What a consumer delivers for a partition that is not asked for is held for it, and beyond a bound the
partition is paused until it is. librdkafka prefetches a bounded number of bytes for each consumer in the background, so
memory does not grow with the topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition

from schemas.records import BARRIER_HEADER, EPOCH_HEADER, Barrier, RecordId
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, stable_pauses_s
from streaming.kafka.errors import translate, translated
from streaming.kafka.topics import Watermarks, admin, end_offsets
from streaming.reading.barriers import MergedSource
from streaming.reading.entries import Source, TopicEntry

OnRead = Callable[[int], None]
"""Called with how many more offsets were passed, transaction markers and aborted records included."""

PREFETCH_KIB = 32_768
"""For all consumers of a process together."""
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

    def entries(self) -> Iterator[TopicEntry]:
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
                yield entry_of(message)
            if self._next >= self._end:
                return
            self._await_more()

    def extend(self) -> bool:
        """Move the end to where it is now, once more is committed; False if that takes too long. See `Ends.beyond`."""
        end = self._ends.beyond(self._feed.topic, self._partition, self._end)
        self._end = end or self._end
        return end is not None

    def settle(self) -> bool:
        """Move the end behind all that is in the partition now, once that is decided; True if it has moved."""
        return self.move_to(self._ends.decided(self._feed.topic, self._partition))

    def reaches(self, end: int) -> bool:
        """True if the end lies at this offset or behind it."""
        return self._end >= end

    def move_to(self, end: int) -> bool:
        """Move the end, unless it lies behind this one; True if it has moved."""
        before, self._end = self._end, max(self._end, end)
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


def entry_of(message: Message) -> TopicEntry:
    """A record that a consumer got."""
    offset, headers = message.offset(), message.headers()
    found = _headers(headers) if headers else _NO_HEADERS
    key, value = _bytes(message.key()), _bytes(message.value())
    marks = found.get(BARRIER_HEADER), found.get(EPOCH_HEADER)
    time_ms = message.timestamp()[1]
    return TopicEntry(offset or 0, key, value, marks[0], epoch=marks[1], time_ms=time_ms)


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _headers(headers: Any) -> dict[str, bytes]:
    """Each by its first."""
    return {
        name: value.encode() if isinstance(value, str) else value or b"" for name, value in reversed(headers)
    }


class OpenTopic:
    """One source a partition, in order of partitions. Close it after use."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        marks: Sequence[Watermarks],
        ends: Ends,
        *,
        prefetch_kib: int = PREFETCH_KIB,
        on_read: OnRead = lambda _: None,
        left_out: frozenset[RecordId] = frozenset(),
    ) -> None:
        """Partitions are read from `earliest` to `stable`; records that are `left_out` are as good as not there."""
        starts = [each.earliest for each in marks]
        of_topic = feeds(settings, topic, starts, prefetch_kib=prefetch_kib)
        self._feeds = list(dict.fromkeys(of_topic))
        self.sources = [
            PartitionSource(
                feed,
                partition,
                each,
                on_read=on_read,
                ends=ends,
                left_out=frozenset(offset for number, offset in left_out if number == partition),
            )
            for partition, (feed, each) in enumerate(zip(of_topic, marks, strict=True))
        ]

    def close(self) -> None:
        """Leave the broker."""
        for feed in self._feeds:
            feed.close()


def merged(
    data: OpenTopic,
    barriers: OpenTopic | None,
    topic: str | None,
    begins: Sequence[int] = (),
    *,
    waits: bool = False,
    on_barrier: Callable[[Barrier], None] | None = None,
) -> list[Source]:
    """The sources of a topic, with those of its barrier topic if it has one.

    `begins`, `on_barrier`: as `MergedSource`. `waits`: a barrier is held until the data that it closes is there. Data
    partitions whose barriers are still to be added come as they are.
    """
    if barriers is None or topic is None:
        return list(data.sources)
    closed = [
        MergedSource(
            own,
            closing,
            topic,
            number,
            begin=begins[number] if number < len(begins) else 0,
            reaches=own.reaches if waits else lambda _: True,
            on_barrier=on_barrier,
        )
        for number, (own, closing) in enumerate(zip(data.sources, barriers.sources, strict=False))
    ]
    return [*closed, *data.sources[len(closed) :]]


_MOST_CONSUMERS = 32
_MOST_HELD = 1_000
"""Records of a partition that is not asked for; what is delivered with them comes on top."""
_PREFETCH_RECORDS = 10_000
"""For each consumer: librdkafka spends some 300 bytes on any record."""
_LEAST_PREFETCH_KIB = 256
_CHUNK_RECORDS = 2_000
_POLL_S = 0.2


class Feed:
    """One consumer and the partitions that it reads, each from its start. Close it after use."""

    def __init__(
        self, settings: KafkaSettings, topic: str, starts: Mapping[int, int], **prefetch: int
    ) -> None:
        self.settings, self.topic = settings, topic
        self._held: dict[int, list[Message]] = {partition: [] for partition in starts}
        self._paused = set[int]()
        self._consumer = Consumer(settings.consumer(**prefetch))
        self._consumer.assign([TopicPartition(topic, *start) for start in starts.items()])

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def take(self, partition: int, *, where: str) -> list[Message]:
        """The messages fetched from a partition, and the event of its current end; perhaps none after a short wait.

        Raises: EnvironmentProblem, TopicError.
        """
        if not self._held[partition]:
            self._poll(where)
        found, self._held[partition] = self._held[partition], []
        if partition in self._paused:
            self._paused.discard(partition)
            self._consumer.resume([TopicPartition(self.topic, partition)])
        return found

    def _poll(self, where: str) -> None:
        with translated(self.settings, what=where):
            first = self._consumer.poll(_POLL_S)
            chunk = [] if first is None else [first, *self._consumer.consume(_CHUNK_RECORDS, timeout=0)]
        for message in chunk:
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                self._held[message.partition() or 0].append(message)
            elif not error.retriable():
                raise translate(error, self.settings, what=where)
        self._pause({number for number, held in self._held.items() if len(held) > _MOST_HELD})

    def _pause(self, full: set[int]) -> None:
        more = full - self._paused
        if more and len(self._held) > 1:
            self._paused |= more
            self._consumer.pause([TopicPartition(self.topic, number) for number in more])


def feeds(settings: KafkaSettings, topic: str, starts: Sequence[int], *, prefetch_kib: int) -> list[Feed]:
    """The feed of each partition; of their own as long as they are few. `prefetch_kib` is for all of them together."""
    count = min(len(starts), _MOST_CONSUMERS)
    prefetch = {
        "queued.max.messages.kbytes": max(_LEAST_PREFETCH_KIB, prefetch_kib // max(count, 1)),
        "queued.min.messages": _PREFETCH_RECORDS,
    }
    numbered = list(enumerate(starts))
    made = [Feed(settings, topic, dict(numbered[first::count]), **prefetch) for first in range(count)]
    return [made[partition % count] for partition, _ in numbered]


_UNDECIDED_S = 75.0
"""A transaction that hangs is over by then."""


class Ends:
    """Of the topics of one judgement. `settle_s` is how long is waited for more, in all.

    Ends are last stable offsets, as what a transaction has sent counts as a whole or not at all.
    """

    def __init__(self, settings: KafkaSettings, settle_s: float) -> None:
        self._settings, self._client, self._settle_s = settings, admin(settings), settle_s
        self._deadline_s: float | None = None

    def beyond(self, topic: str, partition: int, end: int) -> int | None:
        """The end of a partition once it lies behind `end`; None when it has not come to that in time."""
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + self._settle_s
        place, pauses_s = (topic, partition), stable_pauses_s()
        committed = IsolationLevel.READ_COMMITTED
        while True:
            found = end_offsets(self._settings, [place], client=self._client, isolation=committed)[place]
            if found > end:
                return found
            if time.monotonic() >= self._deadline_s:
                return None
            self._client.poll(next(pauses_s))

    def decided(self, topic: str, partition: int) -> int:
        """The end of a partition once all that is in it now is decided. Raises: as `await_decided`."""
        return await_decided(self._settings, topic, partition)[partition].stable


def await_decided(
    settings: KafkaSettings, topic: str, partition: int | None = None
) -> tuple[Watermarks, ...]:
    """The watermarks of a topic once all that is in it (in one partition of it) now is decided.

    A commit becomes visible topic by topic: data that a barrier beside it closes may come after the barrier.
    Raises: TopicError(BARRIER_STALLED) for a transaction that stays open.
    """
    with RangeReader(settings) as reader:
        partitions = None if partition is None else [partition]
        return reader.await_stable(topic, timeout_s=_UNDECIDED_S, partitions=partitions)
