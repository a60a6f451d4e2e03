"""The upstream and the output of one judgement, read from Kafka from their beginning to ends fixed at the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from confluent_kafka.admin import AdminClient

from schemas.errors import Code, TopicError
from schemas.records import RecordId
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.kafka.topics import Watermarks, admin, cleanup_policy, watermarks
from streaming.reading.ends import Ends, await_decided
from streaming.reading.entries import Place, Source
from streaming.reading.sources import PREFETCH_KIB, OnRead, OpenTopic, entry_of, merged
from streaming.verify.dead_letters import ListedLetter
from streaming.verify.sources.shortened import Shortened, shared_since


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
        names = [of_output, output, of_upstream, upstream]
        prefetch_kib = PREFETCH_KIB // len([topic for topic in marks if topic])
        self._topics: list[OpenTopic] = []

        def opened(number: int, without: frozenset[RecordId] = frozenset()) -> OpenTopic | None:
            if (name := names[number]) is None:
                return None
            topic = OpenTopic(
                settings,
                name,
                marks[number],
                ends,
                prefetch_kib=prefetch_kib,
                on_read=on_read,
                left_out=without,
            )
            self._topics.append(topic)
            return topic

        out_barriers, out, up_barriers, up = opened(0), opened(1), opened(2), opened(3, left_out)
        assert out is not None
        assert up is not None
        self.output = self._shortened(merged(out, out_barriers, of_output), lists=True)
        self.upstream = self._shortened(merged(up, up_barriers, of_upstream, begins), lists=False)

    def _shortened(self, sources: Sequence[Source], *, lists: bool) -> Sequence[Source]:
        if self.since is None:
            return sources
        return [Shortened(source, self.since, lists) for source in sources]

    def __enter__(self) -> TopicPair:
        return self

    def __exit__(self, *_: object) -> None:
        for topic in self._topics:
            topic.close()


def read_letters(settings: KafkaSettings, topic: str) -> list[ListedLetter]:
    """The records of a dead-letter topic, as of now. Raises: EnvironmentProblem, TopicError."""
    letters = []
    with RangeReader(settings) as reader:
        ranges = {p: (marks.earliest, marks.stable) for p, marks in enumerate(reader.watermarks(topic))}
        for chunk in reader.read(topic, ranges):
            for message in chunk:
                where = Place(topic, *located(message))
                entry = entry_of(message)
                place, code = (
                    (header_of(message, name) or b"").decode("utf-8", "replace") for name in ("place", "code")
                )
                letters.append(ListedLetter(where, place, entry.key, entry.value, code))
    return letters


def _whole(topic: str, marks: tuple[Watermarks, ...], begins: Sequence[int] = ()) -> tuple[Watermarks, ...]:
    """The watermarks from the first record on that counts. Raises: TopicError(DATA_LOST)."""
    wanted = (*begins, *[0] * (len(marks) - len(begins)))
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
