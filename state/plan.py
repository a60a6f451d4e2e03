"""The plan of a batch: what takes the stream from aligned barrier a to aligned barrier b.

A plan is written to the journal before any effect, and a batch that is run again uses the written one. So it
holds everything that decides what is sent: the range of every upstream partition, the barriers in it, the
pinned versions of the replica, and the key range of every snapshot read. Nothing is looked up again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.codec import barrier_header, decode_barrier, encode_barrier
from schemas.errors import Code
from schemas.job import JobDefinition
from schemas.position import Key, position_from_text, position_to_text
from schemas.records import Barrier
from schemas.table import TableSchema


@dataclass(frozen=True, slots=True)
class AlignedBarrier:
    """A barrier that every partition has delivered; `offsets[p]` is where it stands in partition p."""

    barrier: Barrier
    offsets: tuple[int, ...]

    @property
    def epoch(self) -> int:
        """`curr` of the barrier."""
        return self.barrier.curr


@dataclass(frozen=True, slots=True)
class Slice:
    """The key range (after, upto] of one vnode that one snapshot read takes.

    `after` None is −∞. `upto` None is +∞: the vnode is Completed when this slice was read.
    """

    vnode: int
    after: Key | None
    upto: Key | None


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a slice may end: `upto` None reaches the vnode's end. `rows` is an estimate (log rows may differ)."""

    upto: Key | None
    rows: int


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as the service knows it at an aligned barrier.

    `start`: epoch of the barrier at which it starts, the first record of its output. `opened`: whether that
    record was sent. `paused` and `rate_limit` are what mutations made of them, which wins over any file.
    """

    definition: JobDefinition
    start: int
    opened: bool = False
    paused: bool = False
    rate_limit: int | None = None

    @property
    def name(self) -> str:
        """The job's name."""
        return self.definition.name

    @property
    def may_read(self) -> bool:
        """Whether it reads its snapshot, as long as there is some left."""
        return not self.paused and self.rate_limit != 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "definition": json.loads(self.definition.to_json()),
            "start": self.start,
            "opened": self.opened,
            "paused": self.paused,
            "rate_limit": self.rate_limit,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], table: TableSchema) -> JobState:
        """From what `to_dict` gave. Raises: ConfigError for a definition that no longer fits the table."""
        definition = JobDefinition.from_json(json.dumps(raw["definition"]), table)
        return cls(definition, raw["start"], raw["opened"], raw["paused"], raw["rate_limit"])


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a batch does for one job: `opens` sends the start barrier first; then the slices are read."""

    state: JobState
    slices: tuple[Slice, ...] = ()

    @property
    def opens(self) -> bool:
        """Whether the start barrier is still to be sent."""
        return not self.state.opened


@dataclass(frozen=True, slots=True)
class ReplicaVersion:
    """The pinned replica at an aligned barrier: immutable files, so a reader needs no table.

    `base` and `log` are versions of the Delta tables. The base holds the fold of all epochs up to
    `folded_epoch`; the log's files hold at least everything after it.
    """

    base: int
    log: int
    folded_epoch: int


@dataclass(frozen=True, slots=True)
class Parked:
    """An upstream record at fault that goes to the dead letters of every job, sent by the lane that found it."""

    partition: int
    offset: int
    code: Code
    lane: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """From `start` (None: the topic's beginning) over `barriers`, in order, the last of which is b.

    `first_offsets[p]` is the first offset of partition p that belongs to the batch; it ends with b itself.
    `skipped` are upstream records, (partition, offset), that nobody is to read: repeated barriers, and those at fault
    that the operator told to leave out or that are `parked`.
    """

    start: AlignedBarrier | None
    barriers: tuple[AlignedBarrier, ...]
    first_offsets: tuple[int, ...]
    replica: ReplicaVersion
    lanes: int
    jobs: tuple[JobPlan, ...] = ()
    skipped: tuple[tuple[int, int], ...] = ()
    parked: tuple[Parked, ...] = ()

    @property
    def end(self) -> AlignedBarrier:
        """The barrier b that the batch ends with."""
        return self.barriers[-1]

    @property
    def epoch(self) -> int:
        """The epoch that this batch brings everything to; the key of every idempotent effect."""
        return self.end.epoch

    @property
    def end_offsets(self) -> tuple[int, ...]:
        """Exclusive: one past b in each partition."""
        return tuple(offset + 1 for offset in self.end.offsets)

    @property
    def max_records(self) -> int:
        """An upper bound of the upstream records in the batch (transaction markers count too)."""
        return sum(end - first for first, end in zip(self.first_offsets, self.end_offsets, strict=True))

    def with_jobs(self, jobs: Sequence[JobPlan]) -> BatchPlan:
        """The same plan for other jobs."""
        return replace(self, jobs=tuple(jobs))

    def to_json(self) -> str:
        """One line of JSON, for the journal."""
        return json.dumps(
            {
                "start": None if self.start is None else _aligned_to_dict(self.start),
                "barriers": [_aligned_to_dict(barrier) for barrier in self.barriers],
                "first_offsets": self.first_offsets,
                "replica": {
                    "base": self.replica.base,
                    "log": self.replica.log,
                    "folded": self.replica.folded_epoch,
                },
                "lanes": self.lanes,
                "jobs": [
                    {"state": job.state.to_dict(), "slices": [_slice_to_list(item) for item in job.slices]}
                    for job in self.jobs
                ],
                "skipped": self.skipped,
                "parked": [(item.partition, item.offset, item.code, item.lane) for item in self.parked],
            }
        )

    @classmethod
    def from_json(cls, text: str, table: TableSchema) -> BatchPlan:
        """From what `to_json` gave."""
        raw = json.loads(text)
        return cls(
            start=None if raw["start"] is None else _aligned_from_dict(raw["start"]),
            barriers=tuple(_aligned_from_dict(item) for item in raw["barriers"]),
            first_offsets=tuple(raw["first_offsets"]),
            replica=ReplicaVersion(raw["replica"]["base"], raw["replica"]["log"], raw["replica"]["folded"]),
            lanes=raw["lanes"],
            jobs=tuple(
                JobPlan(
                    JobState.from_dict(item["state"], table),
                    tuple(_slice_from_list(values, table) for values in item["slices"]),
                )
                for item in raw["jobs"]
            ),
            skipped=tuple((partition, offset) for partition, offset in raw["skipped"]),
            parked=tuple(
                Parked(partition, offset, Code(code), lane)
                for partition, offset, code, lane in raw.get("parked", ())
            ),
        )


def _aligned_to_dict(aligned: AlignedBarrier) -> dict[str, Any]:
    # The wire form keeps mutation and progress in one place, the codec.
    header, value = barrier_header(aligned.barrier), encode_barrier(aligned.barrier)
    return {"curr": header.decode(), "avro": value.hex(), "offsets": aligned.offsets}


def _aligned_from_dict(raw: Mapping[str, Any]) -> AlignedBarrier:
    barrier = decode_barrier(raw["curr"].encode(), bytes.fromhex(raw["avro"]), where="journal")
    return AlignedBarrier(barrier, tuple(raw["offsets"]))


def _bound(key: Key | None) -> str | None:
    return None if key is None else position_to_text(key)


def _slice_to_list(item: Slice) -> list[Any]:
    return [item.vnode, _bound(item.after), _bound(item.upto)]


def _slice_from_list(raw: Sequence[Any], table: TableSchema) -> Slice:
    after, upto = (None if text is None else position_from_text(text, table.key_columns) for text in raw[1:])
    return Slice(raw[0], after, upto)
