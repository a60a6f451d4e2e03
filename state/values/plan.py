"""The plan of a batch, which takes the stream from aligned barrier a to aligned barrier b.

A plan is written to the journal before any effect, and a batch that is run again uses the written one. So it
holds everything that decides what is sent: the range of every upstream partition, the barriers in it, the
pinned versions of the replica, and the key range of every snapshot read. Nothing is decided a second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from schemas.errors import Code
from schemas.kinds.full_barriers import begins_period
from schemas.position import Key
from schemas.records import RecordId
from schemas.table import TableSchema
from state.values.aligned import AlignedBarrier, Pin, ReplicaVersion, aligned_from_dict, aligned_to_dict
from state.values.chunks import bounds_from_list, bounds_to_list
from state.values.job_state import JobState as JobState
from state.values.progress import NotStarted, Progress, after_slice
from state.values.reading import Reading
from state.values.seen import Marks, marks_from_dict, marks_to_dict


@dataclass(frozen=True, slots=True)
class Slice:
    """The range (after, upto] of one part of a job that one snapshot read covers: keys of a vnode, in the replica.

    `after` None is −∞. `upto` None is +∞: the part is Completed when this slice was read.
    """

    part: int
    after: Key | None
    upto: Key | None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The work of a batch for one job: if it `opens`, the start barrier is sent first; then its slices are read.

    `left` is there for a no-shuffle backfill: the number of its parts that are not read to their end before the batch.
    `gains_from`: its output gains the partitions from this one on, as the upstream has; None where it gains none.
    """

    state: JobState
    slices: tuple[Slice, ...] = ()
    left: int | None = None
    gains_from: int | None = None

    @property
    def opens(self) -> bool:
        return not self.state.opened

    @property
    def is_read(self) -> bool:
        """True if it is known that every part is read to its end behind the batch."""
        return self.left is not None and self.left == sum(item.upto is None for item in self.slices)

    def of_parts(self, parts: range) -> JobPlan:
        """This plan with the slices of these parts only."""
        return replace(self, slices=tuple(item for item in self.slices if item.part in parts))

    def progress_after(
        self, before: Mapping[int, Progress], rows_read: Mapping[int, int] | None = None
    ) -> Mapping[int, Progress]:
        """The progress of the parts that were started, once the slices were read; `before` holds it at the start.

        Positions follow from the plan alone. Row counts need `rows_read`, the rows of each slice by its part; without
        it they stay as they were. `before` is not changed, and may be the result.
        Raises: IllegalMove for a slice that does not go on from `before`; KeyError for one that `rows_read` lacks.
        """
        if not self.slices:
            return before
        after = dict(before)
        for item in self.slices:
            rows = 0 if rows_read is None else rows_read[item.part]
            after[item.part] = after_slice(after.get(item.part, NotStarted()), item.upto, rows)
        return after


@dataclass(frozen=True, slots=True)
class Parked:
    """An invalid upstream record for the dead letters of every job, sent by the lane that found it."""

    partition: int
    offset: int
    code: Code
    lane: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """From `start` (None: the topic's beginning) over `barriers`, in order, the last of which is b.

    `first_offsets[p]` is the first offset of partition p that belongs to the batch; it ends where b's interval ends.
    `skipped` are upstream records, (partition, offset), that are left out: repeated barriers, and invalid records that
    the operator named or that are `parked`.
    `until`, for a part of a long interval while there is no job: the batch brings only the records before these
    (exclusive) offsets into the log, and the barrier is left to a later batch.
    `silent`: the outputs have all of it already, so the batch updates replica, progress and jobs alone.
    `lanes_set` is what the last `Lanes` before the batch has set, None where the number is the configuration's.
    `seen` are the positions seen in each partition before `first_offsets`, of an upstream whose records may be
    redelivered. `reading` is there while the table is read from its database. `progress_epoch` is the barrier of the
    newest commit of progress before the batch. `moved_at` is the last barrier before the batch that has reported added
    partitions, 0 for none: the changes of a key may come from several partitions from its interval on.
    """

    start: AlignedBarrier | None
    barriers: tuple[AlignedBarrier, ...]
    first_offsets: tuple[int, ...]
    replica: ReplicaVersion
    lanes: int
    jobs: tuple[JobPlan, ...] = ()
    skipped: tuple[RecordId, ...] = ()
    parked: tuple[Parked, ...] = ()
    until: tuple[int, ...] | None = None
    silent: bool = False
    seen: Marks = field(default_factory=dict)
    reading: Reading | None = None
    lanes_set: int | None = None
    progress_epoch: int = 0
    moved_at: int = 0

    @property
    def rises(self) -> tuple[int, ...]:
        """The numbers of its barriers that tell of added partitions."""
        known = [each.barrier.partitions for each in (self.start or self.barriers[0], *self.barriers)]
        return tuple(number for number, (few, more) in enumerate(pairwise(known)) if few < more)

    @property
    def moved_after(self) -> int:
        """`moved_at` of the next batch."""
        return max(self.moved_at, *(self.barriers[number].epoch for number in self.rises), 0)

    @property
    def moves_from(self) -> int | None:
        """The number of its first interval in which a key may come from several partitions; None without one."""
        return 0 if self.moved_at else next(iter(self.rises), None)

    @property
    def pin(self) -> Pin:
        return Pin(self.replica, self.first_offsets)

    @property
    def open_jobs(self) -> tuple[JobPlan, ...]:
        """The jobs whose outputs go on: all but those that have ended."""
        return tuple(job for job in self.jobs if not job.state.ended)

    @property
    def sent_jobs(self) -> tuple[JobPlan, ...]:
        """The jobs that lanes send for; none in a silent batch."""
        return () if self.silent else self.open_jobs

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of the headers that its jobs pass on; only then are headers of records read at all."""
        return tuple(sorted({name for job in self.sent_jobs for name in job.state.definition.headers}))

    def is_full(self, number: int) -> bool:
        """True if the barrier of this number is full in outputs that have a barrier topic."""
        before = self.barriers[number - 1] if number else self.start
        return before is not None and begins_period(before.barrier, self.barriers[number].barrier)

    @property
    def has_full(self) -> bool:
        return any(map(self.is_full, range(len(self.barriers))))

    @property
    def raises_positions(self) -> bool:
        """True if the progress has to be committed; a batch that reads nothing is done with its commit to the log."""
        return self.silent or self.reading is not None or any(job.slices for job in self.jobs)

    def is_done(self, progress_epoch: int, log_epoch: int) -> bool:
        """True if progress and log, by the epochs of their last commits, hold all of the batch."""
        ended = progress_epoch if self.raises_positions else max(progress_epoch, log_epoch)
        return self.until is None and ended >= self.epoch

    def finished_epoch(self, *, is_done: bool) -> int:
        """The epoch of the last finished batch, this one if it `is_done`; 0 before the first."""
        if is_done:
            return self.epoch
        return 0 if self.start is None else self.start.epoch

    @property
    def parks_early(self) -> bool:
        """True if invalid records are parked while no job's output goes on."""
        return bool(self.parked) and not self.open_jobs

    @property
    def end(self) -> AlignedBarrier:
        return self.barriers[-1]

    @property
    def epoch(self) -> int:
        """The epoch of the batch's last barrier, by which every effect is idempotent."""
        return self.end.epoch

    @property
    def end_offsets(self) -> tuple[int, ...]:
        """Exclusive: where b ends each partition's interval, or where a part of the interval ends."""
        return self.until or self.end.ends

    @property
    def end_records(self) -> int:
        """Offsets of all partitions before the end of the batch: it rises from batch to batch, parts included."""
        return sum(self.end_offsets)

    @property
    def max_records(self) -> int:
        """An upper bound of the upstream records in the batch (transaction markers count too)."""
        return sum(end - first for first, end in zip(self.first_offsets, self.end_offsets, strict=True))

    def with_jobs(self, jobs: Sequence[JobPlan]) -> BatchPlan:
        """This plan for other jobs."""
        return replace(self, jobs=tuple(jobs))

    def with_states(self, changed: Callable[[JobState], JobState]) -> BatchPlan:
        """This plan with its jobs in other states."""
        return self.with_jobs([replace(job, state=changed(job.state)) for job in self.jobs])

    def to_json(self) -> str:
        """One line of JSON, for the journal."""
        pinned = self.replica
        return json.dumps(
            {
                "start": None if self.start is None else aligned_to_dict(self.start),
                "barriers": [aligned_to_dict(barrier) for barrier in self.barriers],
                "first_offsets": self.first_offsets,
                "replica": {"base": pinned.base, "log": pinned.log, "folded": pinned.compacted_epoch},
                "lanes": self.lanes,
                **({} if self.lanes_set is None else {"lanes_set": self.lanes_set}),
                "jobs": list(map(_job_to_dict, self.jobs)),
                "skipped": self.skipped,
                "parked": [(item.partition, item.offset, item.code, item.lane) for item in self.parked],
                "until": self.until,
                "silent": self.silent,
                "seen": marks_to_dict(self.seen),
                "progress_epoch": self.progress_epoch,
                **({"moved_at": self.moved_at} if self.moved_at else {}),
                **({} if self.reading is None else {"reading": self.reading.to_dict()}),
            }
        )

    @classmethod
    def from_json(cls, text: str, table: TableSchema) -> BatchPlan:
        """Read what `to_json` gave."""
        raw = json.loads(text)
        return cls(
            start=None if raw["start"] is None else aligned_from_dict(raw["start"]),
            barriers=tuple(aligned_from_dict(item) for item in raw["barriers"]),
            first_offsets=tuple(raw["first_offsets"]),
            replica=ReplicaVersion(raw["replica"]["base"], raw["replica"]["log"], raw["replica"]["folded"]),
            lanes=raw["lanes"],
            jobs=tuple(_job_from_dict(item, table) for item in raw["jobs"]),
            lanes_set=raw.get("lanes_set"),
            skipped=tuple((partition, offset) for partition, offset in raw["skipped"]),
            parked=tuple(Parked(part, at, Code(code), lane) for part, at, code, lane in raw["parked"]),
            until=tuple(raw["until"]) if raw.get("until") else None,
            silent=raw.get("silent", False),
            seen=marks_from_dict(raw.get("seen", {})),
            reading=Reading.from_dict(raw["reading"], table.key_columns) if "reading" in raw else None,
            progress_epoch=raw["progress_epoch"],
            moved_at=raw.get("moved_at", 0),
        )


def _job_to_dict(job: JobPlan) -> dict[str, Any]:
    more = {name: value for name in ("left", "gains_from") if (value := getattr(job, name)) is not None}
    slices = [[item.part, *bounds_to_list(item.after, item.upto)] for item in job.slices]
    return {"state": job.state.to_dict(), "slices": slices, **more}


def _job_from_dict(raw: Mapping[str, Any], table: TableSchema) -> JobPlan:
    state = JobState.from_dict(raw["state"], table)
    columns = state.definition.scan.position_columns(table)
    slices = tuple(Slice(part, *bounds_from_list(ends, columns)) for part, *ends in raw["slices"])
    return JobPlan(state, slices, raw.get("left"), raw.get("gains_from"))
