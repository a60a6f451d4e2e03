"""Batch reports made by hand, for whatever shows them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from schemas.epoch import NO_EPOCH, next_epoch
from schemas.job import JobDefinition
from schemas.records import Barrier, BarrierKind
from schemas.table import TableSchema, declare
from state.replica import BaseFile, ReplicaFiles
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan, JobState
from state.values.progress import Progress
from streaming.core.jobs import JobsOutcome
from streaming.observe.models import SourceStatus
from streaming.protocol.report import BatchReport

TABLE = declare(
    {
        "name": "orders",
        "columns": {"id": "bigint", "region": "string", "amount": "decimal(18,2)"},
        "primary_key": ["id"],
        "vnode_count": 4,
    }
)

SOURCE = SourceStatus(
    form="change avro",
    barriers="inject",
    barrier_interval_s=1.0,
    barrier_topic=None,
    control_topic="up.control",
    start=None,
    moved_at=None,
)


def barrier(at_ms: int) -> Barrier:
    """One that was injected at an instant."""
    epoch = next_epoch(NO_EPOCH, at_ms)
    return Barrier(epoch, epoch - 1, BarrierKind.CHECKPOINT, 2, at_ms)


def job(name: str, table: TableSchema = TABLE, **over: object) -> JobState:
    """A job that is open."""
    definition = JobDefinition.declare({"name": name, "output": f"{name}-out"}, table)
    return JobState(definition, **{"start": 1, "opened": True, **over})  # type: ignore[arg-type]


def report(
    jobs: Sequence[JobState] = (),
    progress: Mapping[str, Mapping[int, Progress]] | None = None,
    *,
    at_ms: int | None = None,
    rows: Mapping[str, int] | None = None,
    stored: Mapping[int, int] | None = None,
    vnode_count: int = 4,
) -> BatchReport:
    """A batch with one barrier, 10 changes, and these snapshot rows; `stored` are the replica's rows by vnode."""
    aligned = AlignedBarrier(barrier(at_ms or time.time_ns() // 1_000_000), (9, 9))
    plan = BatchPlan(None, (aligned,), (0, 0), ReplicaVersion(0, 0, 0), 2)
    base = {vnode: (BaseFile(f"{vnode}", vnode, count, 1),) for vnode, count in (stored or {}).items()}
    read = dict(rows or {})
    return BatchReport(
        plan,
        10,
        read,
        read,
        read,
        {"plan": 20.0, "lanes": 200.0},
        {},
        0,
        (),
        JobsOutcome(tuple(jobs)),
        progress or {},
        vnode_count,
        ReplicaFiles(0, base, ()),
    )
