"""Partitions read as intervals: runs of changes, each closed by a barrier.

The two topics are held to different standards. An upstream whose barriers go back, leave a gap or differ
between partitions has no meaning at all, so there is nothing to judge an output by: that raises. An
output with the same faults is what the judge is there to find: that is reported, and reading goes on at
the next barrier that the upstream knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from schemas.error_table import expectation
from schemas.errors import Code, InputError
from schemas.records import Barrier
from streaming.reading.barriers import read_barrier
from streaming.reading.entries import Place
from streaming.reading.entries import Source as Source
from streaming.reading.entries import TopicEntry as TopicEntry
from streaming.verify.findings import Findings, Rule
from streaming.verify.records.order import moved_in_order


@dataclass(frozen=True, slots=True)
class Closed:
    """A barrier and where it lies; `joined` as in `TopicEntry`."""

    barrier: Barrier
    where: Place
    joined: bool = False


class PartitionHistory:
    """One partition, interval by interval.

    Iterate over `changes()` to its end, then look at `closed`: the barrier that ended the interval, or None
    at the end of the partition.
    """

    def __init__(self, topic: str, partition: int, source: Source) -> None:
        self.topic, self.partition = topic, partition
        self.closed: Closed | None = None
        self.records = 0
        self._source = source
        self._entries = source.entries()

    def at(self, offset: int | None = None) -> Place:
        """A place in this partition, or the partition itself."""
        return Place(self.topic, self.partition, offset)

    def extend(self) -> bool:
        """After the end: go on if the partition has grown. See `Source.extend`."""
        if not self._source.extend():
            return False
        self._entries = self._source.entries()
        return True

    def changes(
        self, on_malformed: Callable[[Place, InputError], None] | None = None
    ) -> Iterator[TopicEntry]:
        """The changes before the next barrier.

        Raises: InputError for a barrier that can't be read, unless `on_malformed` takes it; the record is
        skipped then.
        """
        self.closed = None
        for entry in self._entries:
            self.records += 1
            if entry.barrier is None:
                yield entry
                continue
            where = self.at(entry.offset)
            try:
                barrier = entry.closes or read_barrier(entry.barrier, entry.value, where=str(where))
            except InputError as error:
                if on_malformed is None:
                    raise
                on_malformed(where, error)
                continue
            self.closed = Closed(barrier, where, entry.joined)
            return


Held = tuple[PartitionHistory, TopicEntry]
Apply = Callable[[PartitionHistory, TopicEntry], None]


class UpstreamHistory:
    """All partitions of the upstream, moved from one aligned barrier to the next.

    Where they are read from later offsets on (`begins`), some may see a barrier that others have behind them: the first
    aligned barrier is the first one that all of them see. Partitions that were added are there from the first barrier
    on that says so; `on_rise` is called before the changes of its interval. `by_key`: those of a key go in order.
    """

    def __init__(
        self,
        partitions: Sequence[PartitionHistory],
        begins: Sequence[int] = (),
        on_rise: Callable[[], None] = lambda: None,
        *,
        by_key: bool = True,
    ) -> None:
        self._partitions, self._on_rise, self._by_key = partitions, on_rise, by_key
        self._begins = (*begins, *[0] * (len(partitions) - len(begins)))
        self.last: Barrier | None = None
        self._has_risen = False

    def advance(self, apply: Apply) -> Barrier | None:
        """Hand every change up to the next barrier to `apply`, partition by partition; give that barrier.

        Once partitions were added, the changes of a key that come from several are in the order of `moved_in_order`.
        None when some partition ends first: then `apply` has seen changes that no aligned barrier closes.

        Raises: InputError for barriers that break docs/contract.md#barriers.
        """
        last, held = self.last, list[Held]()
        may_rise = last is not None and last.partitions < len(self._partitions)
        holds = self._has_risen or may_rise
        heads = self._heads((lambda *each: held.append(each)) if holds else apply)
        if heads is not None:
            for other in heads[1:]:
                _agree(heads[0], other)
            self.last = heads[0].barrier
            if last is not None and self.last.partitions > last.partitions:
                self._has_risen = True
                self._on_rise()
        for each in moved_in_order(held) if self._has_risen and self._by_key else held:
            apply(*each)
        return None if heads is None else self.last

    def _heads(self, apply: Apply) -> list[Closed] | None:
        """The next barrier in each partition that has it, None at the end of one."""
        heads = list[Closed]()
        while True:
            count = heads[0].barrier.partitions if heads else 1
            wanted = range(len(heads), count) or (() if self.last else self._behind(heads))
            if not wanted:
                return heads
            for number in wanted:
                head = self._head(self._partitions[number], apply)
                if head is None:
                    return None
                heads[number : number + 1] = [head]

    def _behind(self, heads: Sequence[Closed]) -> Sequence[int]:
        """The partitions whose first barrier lies before the beginning of others."""
        newest = max(head.barrier.curr for head in heads)
        behind = [number for number, head in enumerate(heads) if head.barrier.curr < newest]
        ahead = set(range(min(head.barrier.partitions for head in heads))) - set(behind)
        return behind if all(self._begins[number] for number in ahead) else ()

    def _head(self, partition: PartitionHistory, apply: Apply) -> Closed | None:
        while True:
            seen = 0
            for entry in partition.changes():
                apply(partition, entry)
                seen += 1
            head = partition.closed
            if head is None or not self._is_repeat(head, seen):
                break
        if head is not None:
            self._follows(head)
        return head

    def _is_repeat(self, head: Closed, changes_before: int) -> bool:
        """True if the last barrier is repeated, which is harmless. Raises an error if changes came in between."""
        if self.last is None or head.barrier.curr != self.last.curr:
            return False
        if changes_before:
            raise _broken(
                Code.BARRIER_DUPLICATE_WITH_DATA,
                head,
                f"barrier {self.last.curr} again, with changes before it",
            )
        return True

    def _follows(self, head: Closed) -> None:
        count, most = head.barrier.partitions, len(self._partitions)
        least = head.where.partition + 1 if self.last is None else self.last.partitions
        if not least <= count <= most:
            found, is_less = f"a barrier for {count} partitions", count < least
            before = "the barriers before it are for" if is_less else "the topic has"
            known = least if is_less else most
            raise _broken(Code.PARTITIONS_CHANGED, head, found, partitions=known, before=before)
        if self.last is None:
            return
        if head.barrier.curr < self.last.curr:
            found = f"barrier {head.barrier.curr}"
            raise _broken(Code.BARRIER_REGRESSION, head, found, last=self.last.curr)
        if head.barrier.prev != self.last.curr:
            found = f"a barrier with prev {head.barrier.prev}"
            raise _broken(Code.BARRIER_GAP, head, found, last=self.last.curr)


def _identity(barrier: Barrier) -> tuple[object, ...]:
    return barrier.curr, barrier.prev, barrier.kind, barrier.mutation, barrier.partitions


def _shown(barrier: Barrier) -> str:
    return f"barrier {barrier.curr} (prev {barrier.prev}, {barrier.kind.name})"


def _agree(one: Closed, other: Closed) -> None:
    if _identity(one.barrier) != _identity(other.barrier):
        first = f"at {one.where}: {_shown(one.barrier)}"
        raise _broken(Code.BARRIER_DISAGREE, other, _shown(other.barrier), other=first)


def _broken(code: Code, head: Closed, found: str, **values: object) -> InputError:
    return InputError(
        code,
        where=str(head.where),
        found=found,
        next_step="correct the injector: an output can't be checked against an upstream without one order of barriers",
        expected=expectation(code, **values),
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """The records of one output partition between two barriers."""

    changes: list[TopicEntry]
    closed: Closed


class OutputHistory:
    """One partition of the output, asked for one upstream barrier after another."""

    def __init__(self, history: PartitionHistory, findings: Findings) -> None:
        self.history = history
        self._findings = findings
        self._held: Interval | None = None
        self._exhausted = False
        self._reported_end = False

    @property
    def next_barrier(self) -> Barrier | None:
        """The barrier that the next interval is closed by, None at the end."""
        interval = self._peek()
        return None if interval is None else interval.closed.barrier

    def start(self, *, is_added: bool = False) -> Barrier | None:
        """The first barrier, None on an empty partition. To be called before `take`, once.

        It is the first record, unless it closes the intervals of others as well, or the partition was added later.
        """
        interval = self._peek()
        if interval is None:
            return None
        if interval.changes and not (interval.closed.joined or is_added):
            self._findings.of_output(
                Rule.START_NOT_BARRIER,
                self.history.at(interval.changes[0].offset),
                "the barrier at which the job starts as the first record",
                f"{len(interval.changes)} changes before it",
                interval.closed.barrier.curr,
            )
            interval.changes.clear()
        return interval.closed.barrier

    @property
    def ended(self) -> bool:
        return self._exhausted and self._held is None

    def extend(self) -> bool:
        """After the end: look whether the topic has grown since."""
        if not self.history.extend():
            return False
        self._exhausted = False
        return True

    def take(self, wanted: Barrier) -> Interval | None:
        """The interval that `wanted` closes, None if there is none. Barriers before `wanted` are reported."""
        while (interval := self._peek()) is not None:
            curr = interval.closed.barrier.curr
            if curr > wanted.curr:
                self._missing(wanted, interval.closed.where, f"barrier {curr}")
                return None
            self._held = None
            if curr == wanted.curr:
                return interval
            self._findings.of_output(
                Rule.BARRIER_UNKNOWN,
                interval.closed.where,
                f"barrier {wanted.curr}, the upstream's next",
                f"barrier {curr}, doubled or never sent upstream, closing {len(interval.changes)} changes",
                curr,
            )
        return None

    def report_rest(self) -> None:
        """Say of every interval left that the upstream has no such barrier."""
        while (interval := self._peek()) is not None:
            self._held = None
            curr = interval.closed.barrier.curr
            found = f"barrier {curr}, closing {len(interval.changes)} changes"
            self._findings.of_output(
                Rule.BARRIER_UNKNOWN, interval.closed.where, "barriers of the upstream only", found, curr
            )

    def report_end(self, wanted: Barrier) -> None:
        """Report, once, that this partition ends although others go on."""
        if not self._reported_end:
            self._reported_end = True
            self._missing(wanted, self.history.at(), "the end of the partition, while others have it")

    def _missing(self, wanted: Barrier, where: Place, found: str) -> None:
        self._findings.of_output(Rule.BARRIER_MISSING, where, f"barrier {wanted.curr}", found, wanted.curr)

    def _peek(self) -> Interval | None:
        if self._held is None and not self._exhausted:
            changes = list(self.history.changes(self._malformed))
            if self.history.closed is not None:
                self._held = Interval(changes, self.history.closed)
            else:
                self._exhausted = True
                if changes:
                    self._findings.of_output(
                        Rule.DATA_BEHIND_LAST_BARRIER,
                        self.history.at(changes[0].offset),
                        "a barrier as the last record: it becomes visible together with all that precedes it",
                        f"{len(changes)} changes behind the last barrier",
                        None,
                    )
        return self._held

    def _malformed(self, where: Place, error: InputError) -> None:
        self._findings.of_output(Rule.BARRIER_MALFORMED, where, error.expected, error.found, None)
