"""Topics whose oldest barriers were deleted: all records up to a barrier that every topic still has are one interval.

Shortened    a partition without the barriers before that one, which then lists all positions known by then
FoldedOutput       of an output, what the records of that interval add up to: an INSERT of each row that is left
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from confluent_kafka import Message

from schemas.errors import InputError
from schemas.records import Barrier, VnodeProgress
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located, location
from streaming.kafka.topics import Watermarks
from streaming.reading.barriers import read_barrier, read_separate_barrier
from streaming.reading.entries import Source, TopicEntry
from streaming.reading.sources import entry_of
from streaming.verify.records.rows import OutputView

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
        rows: dict[bytes | None, _Last] = {}
        for entry in self.source.entries():
            if not self._begun and entry.barrier is None:
                self._fold(entry, rows)
                continue
            if not self._begun:
                self._begun = True
                yield from filter(None, (last.shown for last in rows.values()))
            yield entry

    def extend(self) -> bool:
        """Extend the source."""
        return self.source.extend()

    def _fold(self, entry: TopicEntry, rows: dict[bytes | None, _Last]) -> None:
        last = rows.pop(entry.key, _NOTHING)
        try:
            after = self.view.rows.split(entry.value or b"", last.row)[1]
        except InputError:
            rows[entry.key] = _Last(None, entry)
            return
        if after is not None:
            rows[entry.key] = _Last(after, entry._replace(value=self.view.change(None, after)))


class _Last(NamedTuple):
    """The row of a key, and the entry that stands for it."""

    row: bytes | None
    shown: TopicEntry | None


_NOTHING = _Last(None, None)


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
