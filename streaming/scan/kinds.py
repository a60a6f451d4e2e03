"""Scans, the sources of a job's snapshot, read part by part while live changes go on: their contract, and their kinds.

A job falls into parts, each with an order and a position of its own (`schemas.kinds.configs.ScanConfig` has their
number, and the form of a position). A batch reads slices of parts: ranges (after, upto] that follow one another:

    the driver, each batch      `Scan.cut`, slice after slice, until the budget is spent; the ends go into the journal
    the driver, each attempt    `Scan.pinned`, for the parts with slices; the result is sent to every lane
    a lane, in a worker         `PinnedScan.reader`, once a job; `covered` and `parts_of` for each piece of changes

All of a batch goes by one `Pin`, the table as of the barrier a that the batch starts from. It is in the plan, hence in
the journal, and everything here has to be repeatable at it: a plan that is repeated, by another process, after the
replica has grown, was compacted or merged, sends the same bytes. Invariants of every scan:

    slices that follow one another, of whatever budgets, hold each row of the part as of the pin once
    a row belongs to the slice whose range holds its position, and to no other
    a change is covered by a position exactly if the slices up to it would hold its row
    the slice that reaches the part's end completes it, so that everything is covered then, later inserts included

From these four follows the law (docs/contract.md#the-law): a row is sent with a slice, or comes with its changes.

Arrangement       the replica, vnode by vnode in key order. A part is a vnode, a position a primary key. A pin names two
                  versions of Delta tables, whose files are immutable, so later changes of the replica do not matter.
SourceBackfill    the upstream's own records, partition by partition by offset. A part is an upstream partition, a
                  position the first offset that was not read.

In the second a slice is a range of offsets that ends, at the latest, where the batch's changes begin, and its records
come to the lanes together with these (`streaming.core.offset_ranges`, `UpstreamSource.exchanged`): nothing is read
here, and a change below the pin is sent if the slices cover it and those before did not. Offsets are no count of
records: aborted ones and transaction markers have some too, so a slice may turn out smaller than its budget, or empty.

A new kind is a model in `schemas.kinds.configs` and an entry in `SCANS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.formats.protocol import UpstreamFormat
from schemas.job import JobDefinition
from schemas.kinds.configs import ReplicaScan, ScanConfig, TopicScan
from schemas.position import Key
from schemas.table import TableSchema
from state.replica import Replica, ReplicaFiles
from state.storage import Storage
from state.values.aligned import Pin
from state.values.plan import BatchPlan, Slice
from state.values.progress import Completed, InProgress, Progress
from streaming.core.planning import Amount, Cut, CutFunction
from streaming.core.visibility import covered
from streaming.scan.cutting import SliceCutter
from streaming.scan.snapshot import FileOrder, SnapshotReader
from streaming.source.decoded import Changes

SliceReader = Callable[[Slice], Iterator[pa.Table]]
"""The rows of a slice in tables of the columns that it was made for, each row once, values as they are stored.

The order of rows is free, but the same whenever the same slice is read at the same pin. One for several slices of a
lane, so data that they share are read once. Raises: StateError when pinned files are gone.
"""


class PinnedScan(Protocol):
    """A scan at one pin, as lanes get it: a picklable value, without open files or clients.

    It can read slices only of the parts that it was made for; `parts_of` and `covered` work for changes of any part.
    """

    def reader(self, parts: frozenset[int], columns: Sequence[str]) -> SliceReader:
        """A reader of slices of these parts; `columns` include the primary key. Raises: as `SliceReader`."""

    def parts_of(self, changes: Changes) -> npt.NDArray[np.int32]:
        """The part of each change, length n; always one of the parts of the lane that has the change."""

    def covered(self, changes: Changes, progress: Mapping[int, Progress]) -> npt.NDArray[np.bool_]:
        """The mask of changes that the snapshot read has passed, length n. `progress` lists the started parts."""


class Scan(Protocol):
    """One scan of a service, shared by all jobs that name an equal one. Called from one thread.

    It may cache what it reads, as long as no result depends on that.
    """

    def incompatibility(self, job: JobDefinition, pin: Pin) -> str | None:
        """The reason why this scan can't read a job that is about to open; None if it can."""
        return None

    def lost(self, pin: Pin, progress: Mapping[int, Progress]) -> str | None:
        """The deleted data that a job has yet to read, for the log; None if all is there. Such a job stands still."""
        return None

    def cut(self, pin: Pin, part: int, after: Key | None, limit: Amount) -> Cut:
        """The end of a slice of about `limit` that begins behind `after` (None: with the part).

        It has at least one row if there is one; deleted rows that are still stored count, and offsets without a record.
        A part with nothing left is at its end (`upto` None). The end need not be the key of a row, but lies behind
        `after`. Called once a slice: the plan keeps the result, so another call may return another end. Raises:
        StateError when pinned files are gone.
        """

    def pinned(self, pin: Pin, parts: frozenset[int]) -> PinnedScan:
        """The scan at a pin, for lanes that read slices of these parts (none: only for `parts_of` and `covered`).

        The pin may come from the journal, made by another process. Raises: StateError, as `cut`.
        """


@dataclass(frozen=True)
class PinnedArrangement(PinnedScan):
    """`files` are the pinned versions' files of some vnodes; `orders` are the file orders of the vnodes where known."""

    storage: Storage
    table: TableSchema
    files: ReplicaFiles
    orders: Mapping[int, FileOrder]

    def reader(self, parts: frozenset[int], columns: Sequence[str]) -> SliceReader:
        reader = SnapshotReader(self.storage, self.table, self.files.of_vnodes(parts), self.orders)
        overlay = reader.overlay(parts, columns)

        def read(item: Slice) -> Iterator[pa.Table]:
            return reader.read(item, columns, overlay)

        return read

    def parts_of(self, changes: Changes) -> npt.NDArray[np.int32]:
        return changes.vnodes

    def covered(self, changes: Changes, progress: Mapping[int, Progress]) -> npt.NDArray[np.bool_]:
        return covered(changes.vnodes, changes.keys, progress, self.table.vnode_count)


class Arrangement(Scan):
    """The scan of the replica. Keys of base files are cached from batch to batch."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._pin: Pin | None = None
        self._cutter: SliceCutter | None = None

    def cut(self, pin: Pin, part: int, after: Key | None, limit: Amount) -> Cut:
        return self._cutter_at(pin).cut(part, after, limit)

    def _cutter_at(self, pin: Pin) -> SliceCutter:
        if self._cutter is not None and pin == self._pin:
            return self._cutter
        replica = self._replica
        reader = SnapshotReader(replica.storage, replica.table, replica.files(pin.replica))
        if self._cutter is None:
            self._cutter = SliceCutter(reader)
        self._cutter.use(reader)
        self._pin = pin
        return self._cutter

    def pinned(self, pin: Pin, parts: frozenset[int]) -> PinnedArrangement:
        replica = self._replica
        files = replica.files(pin.replica).of_vnodes(parts) if parts else ReplicaFiles(0, {}, ())
        orders = {} if self._cutter is None else self._cutter.orders(files)
        return PinnedArrangement(replica.storage, replica.table, files, orders)


_ALL = np.iinfo(np.int64).max


@dataclass(frozen=True)
class UpstreamLog:
    """The upstream topic, as a scan needs it.

    `begins` gives the first offset that each partition still holds; `likely_bytes` the likely memory of a number of
    changes.
    """

    format: UpstreamFormat
    begins: Callable[[], Sequence[int]]
    likely_bytes: Callable[[int], int]


@dataclass(frozen=True)
class PinnedTopic(PinnedScan):
    """`partitions` is the number of the upstream's. Nothing is read by it: see the module."""

    partitions: int

    def reader(self, parts: frozenset[int], columns: Sequence[str]) -> SliceReader:
        def nothing(item: Slice) -> Iterator[pa.Table]:
            return iter(())

        return nothing

    def parts_of(self, changes: Changes) -> npt.NDArray[np.int32]:
        return changes.partitions

    def covered(self, changes: Changes, progress: Mapping[int, Progress]) -> npt.NDArray[np.bool_]:
        upto = np.zeros(self.partitions, dtype=np.int64)
        for part, state in progress.items():
            if isinstance(state, Completed):
                upto[part] = _ALL
            elif isinstance(state, InProgress):
                upto[part] = state.position[0]
        result: npt.NDArray[np.bool_] = changes.offsets < upto[changes.partitions]
        return result


class SourceBackfill(Scan):
    """The scan of the upstream topic. Requests its first offsets once per pin."""

    def __init__(self, log: UpstreamLog) -> None:
        self._log = log
        self._pin: Pin | None = None
        self._begins: Sequence[int] = ()

    def cut(self, pin: Pin, part: int, after: Key | None, limit: Amount) -> Cut:
        begin = self._begin_at(pin)[part] if after is None else after[0]
        left, row_bytes = max(pin.offsets[part] - begin, 0), max(self._log.likely_bytes(1), 1)
        count = max(min(limit.rows, limit.size // row_bytes), 1)
        if left <= count:
            return Cut(None, left, left * row_bytes)
        return Cut((begin + count,), count, count * row_bytes)

    def _begin_at(self, pin: Pin) -> Sequence[int]:
        if pin != self._pin:
            self._pin, self._begins = pin, self._log.begins()
        return self._begins

    def pinned(self, pin: Pin, parts: frozenset[int]) -> PinnedTopic:
        return PinnedTopic(len(pin.offsets))

    def incompatibility(self, job: JobDefinition, pin: Pin) -> str | None:
        partitions = len(pin.offsets)
        if job.output_partitions != partitions:
            return f"read: topic with {job.output_partitions} output_partitions, of {partitions} partitions"
        return job.scan.incompatibility_with_format(self._log.format)

    def lost(self, pin: Pin, progress: Mapping[int, Progress]) -> str | None:
        begins = self._begin_at(pin)
        gone = [
            f"{part}@{state.position[0]} to {part}@{begins[part] - 1}"
            for part, state in sorted(progress.items())
            if isinstance(state, InProgress) and state.position[0] < begins[part]
        ]
        return ", ".join(gone) or None


@dataclass(frozen=True)
class Sources:
    """The sources of scans. `log` is None outside a service: commands have the replica alone."""

    replica: Replica
    log: UpstreamLog | None = None


def _topic_scan(_: object, sources: Sources) -> Scan:
    assert sources.log is not None, "only a service reads its upstream"
    return SourceBackfill(sources.log)


SCANS: dict[type[ScanConfig], Callable[[Any, Sources], Scan]] = {
    ReplicaScan: lambda _, sources: Arrangement(sources.replica),
    TopicScan: _topic_scan,
}
"""By its model, an instance of which is the first argument."""


class Scans:
    """The scans of a service: one for each that its jobs name, made on its first use."""

    def __init__(self, replica: Replica, log: UpstreamLog | None = None) -> None:
        self._sources = Sources(replica, log)
        self._scans: dict[ScanConfig, Scan] = {}

    def scan_for(self, job: JobDefinition) -> Scan:
        """The scan that the job names, made on its first use."""
        config = job.scan
        if config not in self._scans:
            self._scans[config] = SCANS[type(config)](config, self._sources)
        return self._scans[config]

    def cut_of(self, pin: Pin) -> Callable[[JobDefinition], CutFunction]:
        """The function that gives, for a job, its `CutFunction` at this pin."""
        return lambda job: partial(self.scan_for(job).cut, pin)

    def pinned(self, plan: BatchPlan) -> Mapping[ScanConfig, PinnedScan]:
        """Each scan of the plan's jobs, pinned for the parts that lanes are to read.

        Raises: StateError when pinned files are gone.
        """
        scans = {job.state.definition.scan: self.scan_for(job.state.definition) for job in plan.jobs}
        parts: dict[ScanConfig, set[int]] = {config: set() for config in scans}
        for job in plan.sent_jobs:
            parts[job.state.definition.scan].update(item.part for item in job.slices)
        return {config: scan.pinned(plan.pin, frozenset(parts[config])) for config, scan in scans.items()}
