"""Types of the API's requests that change something, and of their answers, in the OpenAPI description as `models`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from schemas.kinds.table_changes import MOST_CHANGES, TableChange, changes_from_json, changes_text
from schemas.records import RECORD_PATTERN
from streaming.observe.models import ApiModel

_MAX_LIMIT = 10**12


def _whole(value: object) -> object:
    """JSON knows one kind of number: 10.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Rows = Annotated[int, Field(ge=0, le=_MAX_LIMIT), BeforeValidator(_whole)]


_MISSING = (
    "Whether earlier records may have had the field, so that rows lack its values until a record comes."
)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AddedColumn(_Request):
    """A new column, as below `columns` in a configuration."""

    add: dict[str, str | dict[str, Any]] = Field(min_length=1, max_length=1)
    accept_missing: bool = Field(False, description=_MISSING)


class WidenedColumn(_Request):
    """A wider type for a column, `{c: bigint}`."""

    widen: dict[str, str] = Field(min_length=1, max_length=1)


class RetiredColumn(_Request):
    """A column that the upstream's table has no more."""

    retire: str


class RenamedField(_Request):
    """A new name in records of a column, `{old: new}`."""

    rename: dict[str, str] = Field(min_length=1, max_length=1)
    accept_missing: bool = Field(False, description=_MISSING)


class IgnoredField(_Request):
    """A field of records that is no column."""

    ignore: str


Changes = list[AddedColumn | WidenedColumn | RetiredColumn | RenamedField | IgnoredField]


class NewJob(_Request):
    """A job, as below `jobs` in a configuration."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: str = Field(max_length=63)
    output: str = Field(max_length=249)
    columns: list[str | dict[str, str | None]] | None = Field(
        None, description="`id`, renamed `{cust: customer}`, or masked: `{mail: hash(mail)}`, `{mail: null}`."
    )
    key: list[str] | None = None
    hash_key_file: str | None = Field(None, description="A file on the service's machine.", max_length=4_096)
    filter: str | None = Field(None, max_length=16_384)
    output_partitions: Count | None = None
    rate_limit: Rows | None = None
    latency_budget: str | None = None
    replication_factor: Count | None = None
    topic_config: dict[str, str] | None = None
    allow_retention: bool | None = None
    paused: bool | None = None
    from_: str | None = Field(None, alias="from", max_length=63)
    until: str | None = Field(None, max_length=63)
    format: str | None = Field(None, max_length=63)
    encoding: str | None = Field(None, max_length=63)
    tombstones: bool | None = None
    barrier_topic: str | None = Field(None, max_length=249)
    read: str | None = Field(None, max_length=63)
    headers: list[str] | None = None
    new_columns: str | None = Field(None, max_length=63)
    sink: str | None = Field(None, max_length=63)

    def declared(self) -> dict[str, Any]:
        """The job as a configuration has it; a null is a key that is not there."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class Limit(_Request):
    """Snapshot rows per second; null takes the limit away."""

    rate_limit: Rows | None


class WantedLanes(_Request):
    """The number of lanes from the next barrier's batch on."""

    lanes: Count


class WantedChanges(_Request):
    """Changes of the table, for records from the next barrier on."""

    changes: Changes = Field(min_length=1, max_length=MOST_CHANGES)

    def text(self) -> str:
        """The text of the mutation."""
        return changes_text(_asked(self.changes))


class Problem(ApiModel):
    """An error: as on the command line."""

    code: str
    found: str
    expected: str
    next_step: str


class WayOn(_Request):
    """A decision on a suspended table."""

    skip_records: list[Annotated[str, Field(pattern=f"^{RECORD_PATTERN}$")]] = Field(
        [],
        description="Records to leave out if they are invalid, each as PARTITION@OFFSET.",
        max_length=1_000,
    )
    accept_log_reset: bool = Field(False, description="Whether a database's log may begin anew once more.")
    drop: str | None = Field(None, description="A job to drop first.", max_length=63)
    alter: Changes = Field([], description="Changes of the table.", max_length=MOST_CHANGES)

    def changes(self) -> tuple[TableChange, ...]:
        """The changes of the table; none if there are none."""
        return _asked(self.alter) if self.alter else ()


def _asked(changes: Changes) -> tuple[TableChange, ...]:
    return changes_from_json([each.model_dump() for each in changes])


class JobEstimate(ApiModel):
    """Estimate of what a job would read, send and take, as by `backfill plan`; nothing is started or changed."""

    rows: int = Field(
        description="Rows that it reads; with `read: topic` offsets, some of which hold no record."
    )
    kept_share: float | None = Field(
        description="Of a sample, what its filter lets through; null without rows."
    )
    output_rows: int | None
    output_bytes: int | None = Field(description="Keys and values, uncompressed.")
    seconds: float | None = Field(description="At the least; null where it never ends, or nothing is known.")
    output_partitions: int
    columns: list[str]
    form: str = Field(description="Format and encoding of the output, as in `debezium json`.")


class Taken(ApiModel):
    """A control request that is in the topic; it takes effect at the end of the batch that holds its barrier."""

    wanted: str
