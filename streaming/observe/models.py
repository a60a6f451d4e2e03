"""What the API says, as types: FastAPI makes the OpenAPI description of them, and the page reads them.

Instants are Unix seconds, rates per second; `None` is "not known (yet)".
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from streaming.core.forecast import Phase

Condition = Literal["starting", "serving", "degraded", "stopping"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class JobStatus(_Model):
    """One job."""

    name: str
    output: str
    phase: Phase
    paused: bool
    rate_limit: int | None = Field(description="Snapshot rows per second; null for no limit.")
    share: float = Field(ge=0, le=1, description="Of the snapshot's rows that were read; never falls.")
    grew: bool = Field(
        description="The table grew ahead of the read: the true share is lower than the one shown."
    )
    rows_read: int
    rows_left: int = Field(description="An estimate from file statistics; 0 only when complete.")
    rows_per_s: float | None
    seconds_left: float | None
    vnodes_done: int
    vnodes_in_progress: int
    start: int = Field(description="Epoch of the barrier that it started at.")
    filter: str | None
    columns: list[str]
    output_partitions: int


class PartitionStatus(_Model):
    """One partition of the upstream."""

    partition: int
    barrier: int | None = Field(description="Epoch of its newest barrier.")
    barriers_waiting: int = Field(description="Barriers that other partitions have yet to deliver.")
    age_s: float | None = Field(description="Age of its newest barrier.")


class Latency(_Model):
    """From a barrier's injection to its being readable in the outputs, over the last minute."""

    p50_s: float | None
    p99_s: float | None


class Status(_Model):
    """The whole service at a glance."""

    version: str
    condition: Condition
    trouble: str | None = Field(description="Why it is degraded.")
    upstream: str
    table: str
    owner: str
    started: float
    barrier: int = Field(description="Epoch of the last barrier that is done; 0 before the first.")
    barrier_age_s: float | None
    lanes: int
    vnode_count: int
    replica_rows: int
    log_rows: int = Field(description="Changes that wait to be folded.")
    parked: int = Field(description="Records at fault that were parked since the start.")
    latency: Latency
    jobs: list[JobStatus]
    partitions: list[PartitionStatus]
    can_steer: bool = Field(
        description="Whether a token is configured, without which nothing can be changed here."
    )


class VnodeStatus(_Model):
    """One vnode of a job."""

    vnode: int
    lane: int
    state: Literal["not started", "in progress", "completed"]
    share: float
    rows_read: int


class Point(_Model):
    """One second of the past."""

    at: float
    latency_s: float | None
    changes_per_s: float
    rows_per_s: dict[str, float] = Field(description="Snapshot rows by job.")
    batch_s: float


class Problem(_Model):
    """An error: as on the command line."""

    code: str
    found: str
    expected: str
    next_step: str


class Taken(_Model):
    """A wish that is in the control topic; it takes effect at the end of the batch that holds its barrier."""

    wish: str
