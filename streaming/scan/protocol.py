"""The contract of a scan, the source of a job's snapshot, which is read part by part while live changes go on.

A job falls into parts, each with an order and a position of its own (`schemas.kinds.kinds.ScanConfig` has their number,
and the form of a position). A batch reads slices of parts: ranges (after, upto] that follow one another. The calls:

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

Where slices are ranges of the upstream's own records (`ScanConfig.reads_upstream`), these come to the lanes as changes
do, and readers give nothing. A change below the pin is then sent if the slices cover it and those before did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.job import JobDefinition
from schemas.position import Key
from state.values.aligned import Pin
from state.values.plan import Slice
from state.values.progress import Progress
from streaming.core.planning import Amount, Cut
from streaming.source.changes import Changes

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
