"""The law for the two kinds of outputs: those that are sent from the table, and those sent from the upstream's records.

    the table          a row of the table once the positions pass its key, then its changes: `TableLaw`
    the upstream       the records of each upstream partition below its position, in their order: `RecordsLaw`

The checker (`streaming.verify.checker`) goes from barrier to barrier and asks one of them about each interval.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from schemas.position import Key
from schemas.table import TableSchema
from streaming.reading.entries import RowChange
from streaming.reading.records.forms import RowImages
from streaming.verify.expectation import Expectation, Explainer, cross_off
from streaming.verify.findings import Findings, Rule
from streaming.verify.fold import Rows, UpstreamFold
from streaming.verify.history import Closed, Interval, PartitionHistory, TopicEntry
from streaming.verify.positions import Move, Positions, PublishedParts
from streaming.verify.records.keys import KeySpace
from streaming.verify.records.rows import OutputView


class Law(Protocol):
    """The law of one output. `apply` every change of an interval, `judge` each of its partitions, then `settle`."""

    parts: PublishedParts
    positions: Positions

    def __len__(self) -> int:
        """The number of rows in the table."""

    def begin(self, rows: Rows) -> None:
        """Take the table that the changes begin from, before all else."""
        return

    def apply(self, partition: PartitionHistory, entry: TopicEntry) -> None:
        """Take a change of the upstream. Raises: InputError for a record that is no change of the table."""

    def judge(self, partition: PartitionHistory, interval: Interval) -> None:
        """Compare an output partition's interval with what was applied; each difference becomes a finding."""

    def settle(self, *, is_due: bool) -> None:
        """The interval is over. `is_due`: the output has the next one."""

    def rise(self) -> None:
        """The upstream has gained partitions, by the barrier that closes the interval which is applied next."""
        return

    def gain(self, partitions: Iterable[int]) -> None:
        """The output gains these partitions, with the interval which is judged next."""
        return


class TableLaw(Law):
    """The law of an output that is sent from the table."""

    def __init__(
        self,
        table: TableSchema,
        view: OutputView,
        partitions: int,
        findings: Findings,
        rows_before: RowImages,
        *,
        from_now: bool = False,
    ) -> None:
        self.parts = keys = KeySpace(table, partitions)
        self.positions = Positions(keys, findings)
        self._fold = UpstreamFold(table, keys, self.positions, findings, rows_before)
        self._view, self._findings, self._from_now = view, findings, from_now
        self._explainer = Explainer(keys, view, findings)

    def __len__(self) -> int:
        return len(self._fold)

    def begin(self, rows: Rows) -> None:
        """Fold it."""
        self._fold.begin(rows)

    def apply(self, partition: PartitionHistory, entry: TopicEntry) -> None:
        """Fold it."""
        self._fold.apply(partition, entry)

    def rise(self) -> None:
        """A key may go on in another partition."""
        self._fold.moves += 1

    def settle(self, *, is_due: bool) -> None:
        """Forget what the interval has changed."""
        self._fold.settle()
        self._fold.recording = is_due

    def judge(self, partition: PartitionHistory, interval: Interval) -> None:
        """Compare key by key."""
        number = partition.partition
        newly_read = self._newly_read(number, interval)
        expectation = Expectation(newly_read, self._fold.changed[number], self.positions, self._view)
        wanted = expectation.records()
        suspects = cross_off(wanted, interval.changes, self._view.primary)
        if suspects or wanted:
            self._explainer.explain(partition, interval, expectation, suspects.union(wanted))

    def _newly_read(self, partition: int, interval: Interval) -> dict[bytes, bytes]:
        """Move the positions; give the rows, as of the barrier before, of the keys that they passed.

        Of a job that begins now there are none. Where its first barriers are gone it is not known which rows were
        changed since it began: each that is there has to be the table's.
        """
        rows: dict[bytes, bytes] = {}
        closed = interval.closed
        there = interval.changes if closed.joined else ()
        known = {self._view.primary(entry.change.key or b"") for entry in there if entry.change is not None}
        for move in self.positions.move(partition, closed):
            passed = self._fold.read(move.vnode, move.standing)
            if self._from_now:
                passed = {key: row for key, row in passed.items() if key in known}
            check_count(self._findings, closed, move, len(passed))
            rows.update(passed)
        return rows


def check_count(findings: Findings, closed: Closed, move: Move, passed: int) -> None:
    """Add a finding unless the row counts in a barrier are those of the rows that its positions passed."""
    if move.rows_claimed is not None and passed != move.rows_claimed:
        expected = f"row_count to rise by {passed}, the rows that the position passed"
        found, barrier = f"by {move.rows_claimed}", closed.barrier.curr
        findings.of_output(Rule.ROW_COUNT_WRONG, closed.where, expected, found, barrier, move.vnode)


class UpstreamPartitions(PublishedParts):
    """The parts of an output that has the upstream's partitions; a position is an offset."""

    name = "partitions"

    def __init__(self, partitions: int) -> None:
        self.vnode_count = partitions

    def partition_of(self, vnode: int) -> int:
        """Its own number: such a part is a partition."""
        return vnode

    def position(self, text: str) -> Key:
        """From `[42]`, written just so."""
        digits = text[1:-1]
        if not (digits.isascii() and digits.isdigit()) or text != f"[{int(digits)}]":
            raise ValueError("no offset in brackets")
        return (int(digits),)


class _Record(NamedTuple):
    """An output's record of an upstream record; `change` None for none. `interval` counts the barriers before it."""

    offset: int
    interval: int
    change: RowChange | None


def _since_now(passed: Sequence[_Record], interval: Interval) -> list[_Record]:
    """Of the records up to the first barrier of a job that begins now, those that were sent.

    None; where its first barriers are gone, the last of them, as many as there are.
    """
    count = len(interval.changes) if interval.closed.joined else 0
    shown = [record for record in passed if record.change is not None]
    return shown[max(len(shown) - count, 0) :]


class RecordsLaw(Law):
    """The law of an output that is sent the upstream's records; it holds those that no position has passed."""

    def __init__(
        self,
        view: OutputView,
        partitions: int,
        findings: Findings,
        *,
        upstream: int = 0,
        from_now: bool = False,
    ) -> None:
        """`upstream` are its partitions, which may be more by now."""
        self.parts = UpstreamPartitions(partitions)
        self.positions = Positions(self.parts, findings)
        self._view, self._findings = view, findings
        self._waiting = [deque[_Record]() for _ in range(max(partitions, upstream))]
        self._finished = [False] * partitions
        self._interval = 0
        self._leaves_out = [from_now] * partitions

    def __len__(self) -> int:
        return 0

    def apply(self, partition: PartitionHistory, entry: TopicEntry) -> None:
        """Hold a record until the position of its partition passes it."""
        if entry.change is None:
            raise entry.no_change(partition.at(entry.offset))
        key, *rows = entry.change
        change = RowChange(key, *self._view.change(*map(self._view.of, rows)))
        is_shown = (change.before, change.after) != (None, None)
        record = _Record(entry.offset, self._interval, change if is_shown else None)
        self._waiting[partition.partition].append(record)

    def gain(self, partitions: Iterable[int]) -> None:
        """All of their records are from behind the start."""
        for number in partitions:
            self._leaves_out[number] = False

    def settle(self, *, is_due: bool) -> None:
        """Count the interval."""
        self._interval += 1

    def judge(self, partition: PartitionHistory, interval: Interval) -> None:
        """Compare record by record."""
        number, closed = partition.partition, interval.closed
        end, moves = -1, self.positions.move(number, closed)
        for move in moves:
            self._finished[number] |= move.standing.finished
            if move.standing.bound is not None:
                end = move.standing.bound[0]
        passed = self._passed(number, end)
        if self._leaves_out[number]:
            passed, self._leaves_out[number] = _since_now(passed, interval), False
        for move in moves:
            early = sum(record.interval < self._interval for record in passed)
            check_count(self._findings, closed, move, early)
        wanted = [record for record in passed if record.change is not None]
        if [record.change for record in wanted] != [entry.change for entry in interval.changes]:
            self._explain(partition, interval, wanted)

    def _passed(self, number: int, end: int) -> list[_Record]:
        waiting, passed = self._waiting[number], list[_Record]()
        while waiting and (self._finished[number] or waiting[0].offset < end):
            passed.append(waiting.popleft())
        return passed

    def _explain(self, partition: PartitionHistory, interval: Interval, wanted: Sequence[_Record]) -> None:
        """Find the missing and the additional records."""
        there = [entry.change for entry in interval.changes]
        expected = [record.change for record in wanted]
        missing, surplus = Counter(expected) - Counter(there), Counter(there) - Counter(expected)
        if not missing and not surplus:
            first = next(i for i, pair in enumerate(zip(there, expected, strict=True)) if pair[0] != pair[1])
            text = f"the record at {wanted[first].offset} of the upstream partition next"
            self._say(
                Rule.REORDERED, partition, interval, interval.changes[first], text, "another one of them"
            )
        for record in wanted:
            if missing[record.change]:
                missing[record.change] -= 1
                text = f"the record at {record.offset} of the upstream partition"
                self._say(Rule.LOST, partition, interval, None, text, "nothing")
        ahead = {record.change for record in self._waiting[partition.partition]}
        for entry in interval.changes:
            if surplus[entry.change]:
                surplus[entry.change] -= 1
                rule = Rule.BEYOND_POSITION if entry.change in ahead - {None} else Rule.EXTRA
                self._say(rule, partition, interval, entry, "nothing", "a record")

    def _say(
        self,
        rule: Rule,
        partition: PartitionHistory,
        interval: Interval,
        entry: TopicEntry | None,
        expected: str,
        found: str,
    ) -> None:
        where = interval.closed.where if entry is None else partition.at(entry.offset)
        barrier = interval.closed.barrier.curr
        self._findings.of_output(rule, where, expected, found, barrier, partition.partition)
