"""The law (docs/contract.md#the-law) record by record, interval by interval.

With a the barrier before and b the barrier that closes the interval, and pos as the output's own barriers
publish it, the output of one key in one interval is determined by the upstream alone:

    pk <= pos(a)            the key's changes of the interval, in order, through filter and projection
    pos(a) < pk <= pos(b)   one INSERT of its row as of a if it existed and shows, then those changes
    pk > pos(b)             nothing

So the judge writes down what must be there and crosses off what is there. What is left on either side is
looked at key by key, and reported once a key. An output that passes is equal
to the filtered and projected upstream up to its positions at every one of its barriers, by induction;
INSERT of an absent key only, `before` as stored, no record twice all follow. One interval costs O(c log n)
for c changed or newly read keys of n.

No I/O, no clock: `tests/unit/verify` feeds it lists.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.records import Barrier
from schemas.table import TableSchema
from streaming.reading.records.forms import CHANGE_FORM, RecordForm, RowImages
from streaming.verify.announced import AnnouncedColumns
from streaming.verify.dead_letters import DeadLetters
from streaming.verify.findings import Findings, Report, Rule
from streaming.verify.fold import InitialTable
from streaming.verify.history import (
    Closed,
    Interval,
    OutputHistory,
    PartitionHistory,
    Source,
    TopicEntry,
    UpstreamHistory,
)
from streaming.verify.laws import Law, RecordsLaw, TableLaw
from streaming.verify.records.rows import OutputView


class Checker:
    """Judges one output against its upstream. Build it, `run` it once."""

    def __init__(
        self,
        table: TableSchema,
        view: OutputView,
        upstream: tuple[str, Sequence[Source]],
        output: tuple[str, Sequence[Source]],
        findings: Findings | None = None,
        letters: DeadLetters | None = None,
        rows_before: RowImages = RowImages.FULL,
        *,
        output_form: RecordForm = CHANGE_FORM,
        has_epochs: bool = False,
        reads_upstream: bool = False,
        from_now: bool = False,
        initial: InitialTable | None = None,
    ) -> None:
        """`upstream` and `output` are a topic's name with one source a partition, in order of partitions.

        Their entries are in canonical form. `letters` are the output's, where invalid records are parked; they share
        the `findings`. `rows_before` are those that changes of the upstream have. `output_form` says if the output may
        get columns. `has_epochs`: a change of the output says which interval it is in. `reads_upstream`: the job is
        sent the upstream's records, not the table. `from_now`: it is sent nothing from before its start. `initial`:
        what the upstream's changes begin from, and where; its `sources` give what comes from there on.
        """
        self._findings = findings or Findings()
        self._letters, self._announced = letters, None
        if output_form.fills:
            self._announced = AnnouncedColumns(view.columns, output_form, self._findings)
        self._has_epochs = has_epochs
        self._topics = upstream[0], output[0]
        self._upstream = [
            PartitionHistory(upstream[0], number, source) for number, source in enumerate(upstream[1])
        ]
        self._output = [
            OutputHistory(PartitionHistory(output[0], number, source), self._findings)
            for number, source in enumerate(output[1])
        ]
        partitions = len(self._output)
        self._gains, self._count = reads_upstream, 0 if reads_upstream else partitions
        """Of the output's partitions those that have barriers by now; it gains some where it has the upstream's."""
        self._law: Law = (
            RecordsLaw(view, partitions, self._findings, upstream=len(self._upstream), from_now=from_now)
            if reads_upstream
            else TableLaw(table, view, partitions, self._findings, rows_before, from_now=from_now)
        )
        self._begins_now = set(range(partitions)) if from_now else set()
        self._begins: Sequence[int] = ()
        if initial is not None:
            self._begins = initial.offsets
            self._law.begin(initial.encoded(table))
        self._start: int | None = None
        self._last: int | None = None
        self._barriers = self._behind = 0
        self._extended = self._begun = False

    def run(self, *, require_complete: bool = False) -> Report:
        """Read both topics to their ends. With `require_complete` an unfinished vnode is a finding, too.

        Raises: InputError when the upstream can't be read as a history of this table.
        """
        for number, partition in enumerate(self._output):
            first = partition.start(is_added=0 < self._count <= number)
            if number == 0 and first is not None:
                self._count = self._count or min(first.partitions, len(self._output))
            if first is not None:
                self._start = first.curr if self._start is None else min(self._start, first.curr)
        self._count = self._count or len(self._output)
        upstream = UpstreamHistory(self._upstream, self._begins, self._law.rise, by_key=not self._gains)
        following = self._start is not None
        while (barrier := upstream.advance(self._apply)) is not None:
            started = self._start is not None and barrier.curr >= self._start
            if following and started:
                following = self._judge(barrier)
            self._behind += not following
            if self._letters is not None:
                self._letters.settle(judged=following)
            self._begun = started
            self._law.settle(is_due=following and started)
        if following:
            for partition in self._output:
                partition.report_rest()
        if self._letters is not None:
            self._letters.close()
        if self._announced is not None:
            self._announced.close()
        if require_complete:
            self._check_complete()
        return self._report()

    def _apply(self, partition: PartitionHistory, entry: TopicEntry) -> None:
        if self._letters is None:
            self._law.apply(partition, entry)
        else:
            self._letters.sort(partition, entry, self._law.apply, due=self._begun)

    def _judge(self, barrier: Barrier) -> bool:
        """Judge the interval that `barrier` closes in every partition; False if the output ends before it."""
        if self._extended:
            return False
        without = [each for each in self._due(barrier) if not self._judge_partition(each, barrier)]
        ended = [partition for partition in without if partition.ended]
        if len(ended) == self._count:
            return False
        for partition in ended:
            # A commit becomes visible partition by partition, so it may have torn the ends seen at the start.
            # Where more has come, this barrier is the last that was within all ends.
            extended = partition.extend()
            self._extended |= extended
            if not (extended and self._judge_partition(partition, barrier)):
                partition.report_end(barrier)
        self._barriers += 1
        self._last = barrier.curr
        return True

    def _due(self, barrier: Barrier) -> Sequence[OutputHistory]:
        """The partitions that this barrier is to be in. The first one tells of those that were added."""
        here = self._output[0].next_barrier
        if here is not None and here.curr == barrier.curr and self._count < here.partitions:
            before, self._count = self._count, min(here.partitions, len(self._output))
            self._law.gain(range(before, self._count))
        return self._output[: self._count]

    def _judge_partition(self, partition: OutputHistory, barrier: Barrier) -> bool:
        interval = partition.take(barrier)
        if interval is None:
            return False
        if not interval.closed.joined:
            self._check_barrier(interval.closed, barrier)
            if self._has_epochs:
                self._check_epochs(partition.history, interval)
        if self._announced is not None:
            self._announced.judge(partition.history, interval)
        self._law.judge(partition.history, interval)
        number = partition.history.partition
        if number in self._begins_now:
            self._begins_now.remove(number)
            self._law.positions.expect_finished(number, interval.closed)
        return True

    def _check_barrier(self, closed: Closed, upstream: Barrier) -> None:
        here = closed.barrier
        fields = {
            "prev": (upstream.prev, here.prev),
            "kind": (upstream.kind.name, here.kind.name),
            "partitions": (max(self._count, upstream.partitions * self._gains), here.partitions),
            "mutation": (None, here.mutation and type(here.mutation).__name__),
        }
        wrong = {name: pair for name, pair in fields.items() if pair[0] != pair[1]}
        if wrong:
            wanted, found = (
                ", ".join(f"{name} {pair[side]}" for name, pair in wrong.items()) for side in (0, 1)
            )
            self._findings.of_output(Rule.BARRIER_DIFFERS, closed.where, wanted, found, here.curr)

    def _check_epochs(self, history: PartitionHistory, interval: Interval) -> None:
        epoch = interval.closed.barrier.curr
        wanted = str(epoch).encode()
        for entry in interval.changes:
            if entry.epoch != wanted:
                found = "none" if entry.epoch is None else entry.epoch.decode("ascii", "replace")
                expected = f"header epoch {epoch}, the barrier that closes its interval"
                self._findings.of_output(Rule.EPOCH_WRONG, history.at(entry.offset), expected, found, epoch)

    def _check_complete(self) -> None:
        parts, positions = self._law.parts, self._law.positions
        unfinished = positions.first_unfinished()
        if unfinished is not None:
            where = self._output[parts.partition_of(unfinished)].history.at()
            expected, found = (
                f"all {parts.vnode_count} {parts.name} finished",
                f"{positions.finished} finished",
            )
            self._findings.of_output(Rule.INCOMPLETE, where, expected, found, self._last, unfinished)

    def _report(self) -> Report:
        return Report(
            upstream=self._topics[0],
            output=self._topics[1],
            upstream_records=sum(partition.records for partition in self._upstream),
            output_records=sum(partition.history.records for partition in self._output),
            barriers=self._barriers,
            behind=self._behind,
            start=self._start,
            last=self._last,
            live_keys=len(self._law),
            vnode_count=self._law.parts.vnode_count,
            vnodes_finished=self._law.positions.finished,
            vnodes_in_progress=self._law.positions.in_progress,
            snapshot_rows=self._law.positions.snapshot_rows,
            parts=self._law.parts.name,
            findings=tuple(self._findings.kept),
            counts={f"{side}.{rule}": count for (side, rule), count in self._findings.counts.items()},
        )
