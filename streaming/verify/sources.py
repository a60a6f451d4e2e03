"""The upstream and the output of one judgement, read from Kafka from their beginning to ends fixed at the start.

Barriers beside the data are merged into it. Where the oldest of them were deleted, all records up to a barrier that
every topic still has are one interval:

Shortened       a partition without the barriers before that one, which then lists all positions known by then
FoldedOutput    of an output, what the records of that interval add up to: an INSERT of each row that is left
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from schemas.errors import Code, InputError, TopicError
from schemas.records import Barrier, RecordId, VnodeProgress
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located, location
from streaming.kafka.topics import Watermarks, admin, cleanup_policy, watermarks
from streaming.reading.barriers import read_barrier, read_separate_barrier
from streaming.reading.entries import Place, RowChange, Source, TopicEntry
from streaming.reading.sources import PREFETCH_KIB, Ends, OnRead, OpenTopic, await_decided, entry_of, merged
from streaming.verify.dead_letters import ListedLetter
from streaming.verify.records.rows import OutputView


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


_WINDOW_OFFSETS = 4_096


@dataclass
class Shortened(Source):
    """`source` from the barrier `since` on, behind all data before it. `lists`: of an output, which has positions."""

    source: Source
    since: int
    lists: bool

    def __post_init__(self) -> None:
        self._progress: dict[int, VnodeProgress] | None = {}
        self._columns = dict[str, str]()
        self._is_first = True

    def entries(self) -> Iterator[TopicEntry]:
        """The barriers from `since` on, and all data."""
        return (entry for entry in map(self._shortened, self.source.entries()) if entry is not None)

    def extend(self) -> bool:
        """Extend the source."""
        return self.source.extend()

    def _shortened(self, entry: TopicEntry) -> TopicEntry | None:
        if self._progress is None or entry.barrier is None:
            return entry
        try:
            barrier = entry.closes or read_barrier(entry.barrier, entry.value)
        except InputError:
            return entry  # its reader makes a finding of it
        # All that a barrier in the place of others lists is finished as well where a job begins now.
        is_start = (self._is_first and not barrier.full) or not (self._progress or barrier.progress)
        self._is_first = False
        self._progress |= {each.vnode: each for each in barrier.progress}
        self._columns |= dict(barrier.columns)
        if barrier.curr < self.since:
            return None
        progress, self._progress = tuple(self._progress.values()), None
        if is_start or not self.lists:
            return entry
        columns = tuple(self._columns.items())
        return entry._replace(closes=replace(barrier, progress=progress, columns=columns), joined=True)


@dataclass
class FoldedOutput(Source):
    """An output in canonical form, from the barrier on that closes what was shortened."""

    source: Source
    view: OutputView
    _begun: bool = field(default=False, init=False)

    def entries(self) -> Iterator[TopicEntry]:
        """The sum of what was shortened, then the entries behind it; invalid records stay as they are."""
        rows: dict[bytes | None, TopicEntry] = {}
        for entry in self.source.entries():
            if not self._begun and entry.barrier is None:
                self._fold(entry, rows)
                continue
            if not self._begun:
                self._begun = True
                yield from rows.values()
            yield entry

    def extend(self) -> bool:
        """Extend the source."""
        return self.source.extend()

    def _fold(self, entry: TopicEntry, rows: dict[bytes | None, TopicEntry]) -> None:
        rows.pop(entry.row_key, None)
        change = entry.change
        if change is None:
            rows[entry.row_key] = entry
        elif change.after is not None:
            halves = self.view.change(None, change.after)
            rows[entry.row_key] = entry._replace(change=RowChange(change.key, *halves))


def shared_since(
    settings: KafkaSettings,
    of_output: tuple[str | None, tuple[Watermarks, ...]],
    of_upstream: tuple[str | None, tuple[Watermarks, ...]],
) -> int | None:
    """The oldest barrier that both topics of barriers have in every partition, from where all positions are known.

    Each is a topic, None for one that has its barriers in the data, with its watermarks. None: nothing was deleted.
    """
    if not any(marks.earliest for _, topic in (of_output, of_upstream) for marks in topic):
        return None
    with RangeReader(settings) as reader:
        firsts = [
            _first(reader, name, number, marks, is_output=topic is of_output)
            for topic in (of_output, of_upstream)
            for name in filter(None, topic[:1])
            for number, marks in enumerate(topic[1])
        ]
    return max(firsts, default=0)


def _first(reader: RangeReader, topic: str, partition: int, marks: Watermarks, *, is_output: bool) -> int:
    """The first barrier of a partition to begin with: of one that lacks its oldest, a full one. 0 without any."""

    def is_wanted(barrier: Barrier) -> bool:
        return barrier.full or not is_output or not marks.earliest

    begin = marks.earliest
    while begin < marks.stable:
        end = min(begin + _WINDOW_OFFSETS, marks.stable)
        for chunk in reader.read(topic, {partition: (begin, end)}):
            for message in chunk:
                barrier = _barrier_in(message)
                if barrier is not None and is_wanted(barrier):
                    return barrier.curr
        begin = end
    return 0


def _barrier_in(message: Message) -> Barrier | None:
    """The barrier that a record of a barrier topic is. Raises: InputError, as `read_separate_barrier`."""
    entry, (partition, _) = entry_of(message), located(message)
    if entry.barrier is None:
        return None
    where = location(message)
    found = read_separate_barrier(entry.barrier, entry.key, entry.value, partition=partition, where=where)
    return found.barrier
