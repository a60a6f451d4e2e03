"""Types of the API's answers: FastAPI makes the OpenAPI description of them, and the page reads them.

Instants are Unix seconds, rates per second; `None` is "not known (yet)".
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.errors import Code
from state.values.last_end import EndKind
from streaming.core.forecast import Phase
from streaming.core.health import HealthCondition
from streaming.service.events import EventKind


class ApiModel(BaseModel):
    """A part of an answer; made of a value that has attributes of its fields' names by `model_validate`."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class JobStatus(ApiModel):
    """One job."""

    name: str
    output: str
    kind: Literal["arrangement", "no-shuffle", "source"] = Field(description="Of backfill.")
    phase: Phase
    paused: bool
    paused_by: str | None = Field(description="The error for which the service has paused it; null for none.")
    columns_refused: str | None = Field(description="The error for which it gets no new columns, or null.")
    rate_limit: int | None = Field(description="Snapshot rows per second; null for no limit.")
    share: float = Field(ge=0, le=1, description="Of the snapshot's rows that were read; never falls.")
    grew: bool = Field(description="The table grew ahead of the read: the share is lower than the one shown.")
    rows_read: int
    rows_left: int = Field(description="An estimate from file statistics; 0 only when complete.")
    sent: int = Field(description="Records sent since `sent_since`, rows of the snapshot and changes.")
    sent_per_s: float | None = Field(description="Of the last ten seconds; null where it is not known now.")
    sent_since: float = Field(description="The beginning of its counts, which go on over restarts.")
    rows_per_s: float | None = Field(
        description="Of the last ten seconds; null where it is not known now: while the job is paused or has just "
        "begun, and while the service is not ready."
    )
    seconds_left: float | None = Field(description="By that rate, or the limit if lower; likewise.")
    done_at: float | None = Field(
        description="When all will be read, by that; null for a job that has read all."
    )
    phase_since: float | None = Field(
        description="Since when it is in this phase; null: since before this process."
    )
    behind_s: float | None = Field(
        description="Age of the last barrier in the output, which has all changes up to it; null until it is live."
    )
    worst_behind_s: float | None = Field(
        description="The highest of the last hour, since the job is live; likewise."
    )
    worst_behind_at: float | None = Field(description="When that was.")
    latency_budget_s: float | None = Field(
        description="How much its snapshot may delay live changes; null: by any time."
    )
    parts: int = Field(description="Into how many parts the read falls, each with a position of its own.")
    part_name: str = Field(description="`vnode`; `partition` where the parts are those of the upstream.")
    vnodes_done: int = Field(description="Parts that were read to their end; likewise `vnodes_in_progress`.")
    vnodes_in_progress: int
    start: int = Field(description="Epoch of the barrier that it started at.")
    start_at: float = Field(description="When that barrier was injected.")
    filter: str | None
    columns: list[str]
    key: list[str] = Field(description="Columns in the keys of records; empty: those of the primary key.")
    output_partitions: int
    form: str = Field(description="Format and encoding of the output, as in `debezium json`.")
    barrier_topic: str | None = Field(description="Topic of the output's barriers; null: they are in it.")


class PartitionStatus(ApiModel):
    """One partition of the upstream."""

    partition: int
    barrier: int | None = Field(description="Epoch of its newest barrier.")
    barrier_at: float | None = Field(description="When that was injected.")
    barriers_waiting: int = Field(description="Barriers that other partitions have yet to deliver.")
    age_s: float | None = Field(description="Age of its newest barrier.")
    unstable: int | None = Field(
        description="Records behind its last stable offset, which only the end of a transaction lets through."
    )
    held_s: float | None = Field(
        description="For how long at least an open transaction has held that offset, and by how much the records "
        "behind it are late; null if none does."
    )
    held_offset: int | None = Field(description="That offset; null if no transaction holds it.")
    margin_s: float | None = Field(
        description="Time until the topic may delete a record that was not read yet; null if it deletes none by age."
    )
    lag: int | None = Field(
        description="Offsets below the last stable one that no finished batch holds, as of the last look."
    )


class SourceStatus(ApiModel):
    """The source of the service beside the topic's name, as configured."""

    form: str = Field(description="Format and encoding of the upstream, as in `debezium json`.")
    barriers: str = Field(description="Who writes them: `inject`, this service; `embedded`, others.")
    barrier_interval_s: float = Field(description="Time between two barriers, as it is configured.")
    barrier_topic: str | None = Field(description="Topic of the barriers; null: they are in the upstream.")
    control_topic: str
    start: str | None = Field(description="What the state starts from; null for the topic's beginning.")
    moved_at: float | None = Field(description="When a barrier last reported added partitions.")


class MaintenanceStatus(ApiModel):
    """One kind of work beside the batches."""

    work: str = Field(description="`compaction`, `merge of log files`, `cleaning` or `deletion of barriers`.")
    running_s: float | None = Field(description="For how long it has been under way; null if it is not.")
    failures: int = Field(description="In a row; 0 once it has succeeded.")
    error: str | None = Field(description="Of the last failure; null if there are none in a row.")
    again_in_s: float = Field(description="Time until it is tried again; 0 unless it has failed.")
    next_step: str = Field(description="What to look at when it fails.")


class FieldsStatus(ApiModel):
    """The fields of the upstream's newest rows, a few of which are looked at every few seconds."""

    rows: int = Field(description="That were looked at since the start.")
    lost: list[str] = Field(description="Columns that none of the last 10,000 had, and earlier ones did.")
    never: list[str] = Field(
        description="Columns that none had, once 10,000 came, but for those with a fill."
    )
    undeclared: list[str] = Field(description="Names that are no column's: the first 1,000.")
    more: bool = Field(description="Whether there are further names that are no column's.")


class DiskStatus(ApiModel):
    """Disk that the state takes. Where it is a folder: blocks of the disk, measured once a minute at most.

    In an object store nothing is listed: base and log as their tables name them, and the rest is null.
    """

    age_s: float | None = Field(description="Time since it was measured; null in an object store.")
    base_bytes: int
    log_bytes: int
    journal_bytes: int | None
    progress_bytes: int | None
    initial_bytes: int | None = Field(
        description="Chunks of a table on their way in; null where there are none."
    )
    rows_bytes: int | None = Field(
        description="Rows by key that lanes of this machine keep; null where there are none."
    )
    rows_free_bytes: int | None = Field(
        description="Of the disk that these rows are on; null where there are none."
    )
    free_bytes: int | None = Field(description="Of the state's disk, for this user.")
    disk_bytes: int | None = Field(description="Size of that disk.")
    is_low: bool = Field(
        description="Less is free than a compaction may write beside what there is, or than 1 GiB."
    )
    rows_low: bool = Field(
        description="Less is free for rows by key than a fourth of what they take, or than 64 MiB."
    )


class Reason(ApiModel):
    """Why a service is in its condition: an error as on the command line."""

    code: str
    where: str | None
    found: str
    expected: str
    next_step: str


class EndStatus(ApiModel):
    """The last end of the service's work; until the next batch is done."""

    words: str
    kind: EndKind = Field(
        description="`suspended`: its process is up, and waits for a request. `failed`: an error ended it. "
        "`stopped`: it was asked to. `silent`: without a word, by a kill or with its machine."
    )
    owner: str = Field(description="The process that it was.")
    at: float
    since: float = Field(description="The first end by this same fault, with no batch done since.")
    times: int = Field(description="How many times in a row, since then.")
    fault: Reason | None = Field(description="Null for an end without an error.")
    joined: list[Code] = Field(description="Codes of further faults that came up while it was suspended.")
    commands: list[str] = Field(
        description="What leads on, the likeliest first; empty unless it is suspended."
    )
    meanings: list[str] = Field(description="Outcomes of these commands, in the same order.")
    skippable: str | None = Field(description="The record that may be left out, as PARTITION@OFFSET.")
    new_field: str | None = Field(
        description="The field of records that waits to be a column, or to be ignored."
    )
    deletes_at: float | None = Field(
        description="By when the upstream will have deleted what is unread; null: as long as the topic, or unknown."
    )


class CopyingStatus(ApiModel):
    """Progress of copying the table that the replica starts from."""

    copied: int = Field(description="Rows.")
    sorted: int = Field(
        description="Of the copied rows, those that are in the replica; it begins once all are copied."
    )
    of: int | None = Field(description="Rows of the table; null where it does not say.")


class ReadingStatus(ApiModel):
    """Progress of reading, from its database, the table that the replica starts from."""

    rows: int = Field(description="Rows that were read.")
    of: int = Field(description="Rows of the table, as the database estimates them.")
    waiting_rows: int = Field(
        description="Of the rows that were read, those that wait until their changes have all come."
    )
    seconds_left: float | None = Field(
        validation_alias="left_s", description="For the rows that were not read."
    )
    paused: bool
    rate_limit: int | None = Field(description="Rows per second of all readers; null for no limit.")
    trouble: str | None = Field(description="What it waits for, if that is out of the ordinary.")


class LatencyStatus(ApiModel):
    """From a barrier's injection to its being readable in the outputs, over the last minute."""

    p50_s: float | None
    p99_s: float | None


class Status(ApiModel):
    """The service, its jobs and its upstream, as of now."""

    version: str
    now: float = Field(description="The time of this answer.")
    condition: HealthCondition
    ready: bool = Field(description="Whether barriers come out, as `/readyz` tells.")
    step: str | None = Field(description="The step of the start under way; null from its end on.")
    reason: Reason | None = Field(description="What is wrong and what to do; null if nothing is.")
    jobs_known: bool = Field(description="False while a start has not found any: before its first batch.")
    last_end: EndStatus | None = Field(
        description="How it ended last: while it is suspended, and after a start until a batch is done."
    )
    batch_age_s: float | None = Field(description="Time since the end of the last batch.")
    look_age_s: float | None = Field(
        description="Time since the last look at the upstream, of which are lags and margins; null before the first."
    )
    late_s: float = Field(description="A last batch that is older than this many seconds makes it not ready.")
    upstream: str
    source: SourceStatus
    table: str
    columns: list[str] = Field(description="Of the table, in their order.")
    incomplete: list[str] = Field(
        description="Columns whose values in older rows were ignored and are missing."
    )
    fields: FieldsStatus
    owner: str
    started: float
    barrier: int = Field(description="Epoch of the last barrier that is done; 0 before the first.")
    barrier_at: float | None = Field(description="When that was injected.")
    barrier_age_s: float | None
    lanes: int
    lanes_set: bool = Field(description="True if `backfill lanes` has set them, before the file.")
    vnode_count: int = Field(
        description="0 where rows have no identity: nothing is kept of them; and where vnodes are the upstream's "
        "partitions, before the first batch."
    )
    replica_rows: int
    initial: CopyingStatus | None = Field(description="Null but for a start that copies a table.")
    reading: ReadingStatus | None = Field(description="Null but for a start that reads a table.")
    log_rows: int = Field(description="Changes that wait to be compacted into the base.")
    compaction_age_s: float | None = Field(
        description="Age of the barrier that the base holds; null before the first compaction."
    )
    maintenance: list[MaintenanceStatus] = Field(
        description="Empty while the service starts, or waits for trouble to pass."
    )
    disk: DiskStatus | None = Field(description="Null until it is measured.")
    parked: int = Field(description="Invalid records that were parked since the start.")
    changes_per_s: float | None = Field(
        description="Read from the upstream in the last ten seconds; null where it is not known now."
    )
    latency: LatencyStatus
    jobs: list[JobStatus]
    partitions: list[PartitionStatus]
    can_steer: bool = Field(
        description="Whether a token is configured, without which nothing can be changed here."
    )


class VnodeStatus(ApiModel):
    """One vnode of a job, or with `read: topic` one partition."""

    vnode: int
    lane: int
    state: Literal["not started", "in progress", "completed"]
    share: float
    rows_read: int


class ReaderStatus(ApiModel):
    """A consumer group that has offsets in a job's output."""

    group: str
    state: str = Field(description="The broker's word for it; EMPTY has no member now.")
    behind: int = Field(description="Offsets up to the end, markers of transactions included.")


class OutputStatus(ApiModel):
    """A job's output, as its broker has it now."""

    offsets: int = Field(description="That the topic holds, barriers and markers of transactions included.")
    readers: list[ReaderStatus] = Field(description="Those that are furthest behind first.")
    unasked: int = Field(description="Groups of the cluster that were not asked, for there are so many.")


class Point(ApiModel):
    """Rates and times from the point before until `at`: the batches of a second, or of ten where it is long ago."""

    at: float
    latency_s: float | None = Field(description="The longest, from a barrier's injection to the outputs.")
    behind_s: float | None = Field(
        description="The highest age of the last barrier in the outputs, just before the next one."
    )
    batch_s: float = Field(description="The longest.")
    changes_per_s: float = Field(description="Of the upstream.")
    rows_per_s: dict[str, float] = Field(
        description="Snapshot rows by job; those that read none are left out."
    )
    sent_per_s: dict[str, float] = Field(description="Records into its output by job, likewise.")


class EventStatus(ApiModel):
    """An event of the service."""

    at: float
    kind: EventKind = Field(
        description="`ended` is of the process before, and `taken over` from it; `condition` has a new one; `request` "
        "was carried out, or refused by a `code`."
    )
    text: str = Field(description="Empty where the rest says all.")
    condition: HealthCondition | None = Field(description="Of the service from then on; null: as it was.")
    code: str | None
    job: str | None
