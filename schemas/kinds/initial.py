"""Starts of a table: with the first record of its topic, from a Delta table, or from a table of PostgreSQL.

A table of PostgreSQL is read in chunks in parallel with Debezium's events of it. What carries a start out is in
`state.initial`, `streaming.service.initial` and `streaming.postgres`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from schemas.faults import Faults, brief
from schemas.formats.protocol import Format
from schemas.settings.limits import duration_within, written
from schemas.settings.security import Printable, Secret, Section
from schemas.table import TableSchema

MAX_CHUNK_ROWS, MAX_READERS = 1_000_000, 32


class PostgresStart(Section):
    """A table of PostgreSQL, and the slot of the connector that writes the topic. A value, without a secret in it."""

    dsn_file: Printable = Field(
        repr=False,
        description="File with a connection string or URL of PostgreSQL, mode `0600`: of the primary, with a role that "
        "may `SELECT` from the table.",
    )
    table: Printable = Field(
        min_length=1,
        description="The table as SQL names it: `public.orders`. See [starts](starts.md#from-postgresql).",
    )
    slot: str = Field(
        pattern=r"^[a-z0-9_]{1,63}$", description="Replication slot of the connector, its `slot.name`."
    )
    mode: Literal["chunks", "whole"] = Field(
        "chunks",
        description="`chunks`: short transactions, each with the rows of a range of keys; or `whole`: all rows by one "
        "snapshot, which is held until the end, for keys that the database orders otherwise.",
    )
    chunk_rows: int = Field(50_000, ge=1, le=MAX_CHUNK_ROWS, description="Rows of a chunk, at most.")
    readers: int = Field(
        1, ge=1, le=MAX_READERS, description="Connections that read side by side, a range of keys each."
    )
    rate_limit: int | None = Field(
        None, ge=0, description="Rows per second of all readers together; 0: none, left out: any number."
    )
    statement_timeout: Annotated[int, duration_within(1_000, 3_600_000)] = written(
        "1m",
        description="How long a statement of a chunk may take, `1s` to `1h`; one that takes longer is ended, and tried "
        "again with fewer rows.",
    )
    allow_plaintext: bool = Field(
        False, description="Allow a connection to another machine without `sslmode=verify-full`."
    )
    connector_url: str | None = Field(
        None,
        repr=False,
        pattern=r"^https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._~%-]+)*/connectors/[A-Za-z0-9._~%-]+$",
        description="The connector in the REST API of Kafka Connect, `http(s)://host:port/connectors/name`: its "
        "settings are checked at the start.",
    )

    @property
    def dsn(self) -> Secret:
        """The connection string, to be read when a connection is made."""
        return Secret("initial.postgres.dsn_file", file=Path(self.dsn_file))

    def incompatibility_with_table(self, table: TableSchema) -> str | None:
        """The reason why a table can't start so, None if it can."""
        other = next((each for each in table.columns if each.keys_in_records), None)
        if other is not None:
            return (
                f"initial.postgres reads columns under their own names, and as the connector's settings say: column "
                f"{other.name} has a field, a fill or units of its own"
            )
        if table.by_partition:
            return (
                "initial.postgres is given, and its rows do not say which upstream partition their events come in, "
                "which is their vnode with table.distribution: upstream"
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """The part that a state is bound to, as JSON values; pace, timeouts and the role may change."""
        return {"table": self.table, "slot": self.slot, "mode": self.mode}

    def __str__(self) -> str:
        return f"table {self.table} of PostgreSQL and slot {self.slot}"


def check_postgres(
    declared: PostgresStart | None, upstream: Format | None, *, folder: Path, faults: Faults
) -> PostgresStart | None:
    """The section with its file below `folder`; contradictions and an unusable file go to `faults`."""
    if declared is None:
        return None
    start = declared.below(folder)
    if upstream is not None and not upstream.may_be_unchanged:
        faults.add("initial.postgres needs upstream.format: debezium, without before: full")
    faults.find_by(start.dsn.read)
    return start


def _offsets(declared: object) -> object:
    return tuple(declared) if isinstance(declared, list) else declared


def _unix_ms(declared: object) -> int:
    """Reads an ISO 8601 text, or what YAML has read of one: the first whole millisecond at or after it."""
    at = declared
    if isinstance(declared, str):
        with suppress(ValueError):
            at = dt.datetime.fromisoformat(declared)
    if not isinstance(at, dt.datetime):
        raise ValueError(f"{brief(declared)} is no time as in 2026-01-31T12:00:00Z")
    if at.tzinfo is None:
        raise ValueError("a time without its zone: end it with Z, or with an offset as in +02:00")
    return -((dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - at) // dt.timedelta(milliseconds=1))


class _Start(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DeltaStart(_Start):
    """A Delta table at a version, and from where on the topic has what came after it.

    One of `offsets` (one a partition) and `timestamp` (Unix ms) is given. A value: two that are equal start alike.
    """

    uri: str = Field(
        min_length=1,
        description="Folder or URI of the Delta table that the replica starts from; a relative folder is below this "
        "file's. See [starting from a Delta table](starts.md#from-a-delta-table).",
    )
    version: int = Field(ge=0, description="Version of that table.")
    offsets: Annotated[tuple[Annotated[int, Field(ge=0)], ...] | None, BeforeValidator(_offsets)] = Field(
        None,
        description="Of each partition of the topic, the first record that is not in that version. Earlier ones are "
        "not read.",
    )
    timestamp: Annotated[int | None, BeforeValidator(_unix_ms)] = Field(
        None,
        description="In place of `offsets`: in each partition the first record as of this time (ISO 8601 with `Z` or "
        "an offset) or later. Looked up once, and kept in the state.",
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.offsets is None) == (self.timestamp is None):
            raise ValueError("offsets or timestamp is needed, and not both")
        return self

    def below(self, folder: Path) -> DeltaStart:
        """The start with its path absolute, below `folder` where it is relative."""
        if "://" in self.uri:
            return self
        return self.model_copy(update={"uri": str((folder / self.uri).resolve())})

    def incompatibility_with_table(self, table: TableSchema) -> str | None:
        """The reason why a table can't start so, None if it can."""
        if not table.has_key:
            return "initial.delta is given, and rows of format append have no identity"
        if table.by_partition:
            return (
                "initial.delta is given, and its rows do not say which upstream partition they came in, which is their "
                "vnode with table.distribution: upstream"
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """JSON values, equal for equal starts."""
        offsets = None if self.offsets is None else list(self.offsets)
        return {"uri": self.uri, "version": self.version, "offsets": offsets, "timestamp_ms": self.timestamp}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Reads what `to_dict` gave; further keys are left out."""
        offsets = None if raw["offsets"] is None else tuple(raw["offsets"])
        return cls.model_construct(
            uri=raw["uri"], version=raw["version"], offsets=offsets, timestamp=raw["timestamp_ms"]
        )

    def __str__(self) -> str:
        since = f"offsets {list(self.offsets)}" if self.offsets is not None else f"{self.timestamp} ms"
        return f"version {self.version} of {self.uri} and {since}"


class InitialConfig(_Start):
    """The section `initial`: one of its keys."""

    delta: DeltaStart | None = None
    postgres: PostgresStart | None = None

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if (self.delta is None) == (self.postgres is None):
            raise ValueError("delta or postgres is needed, and not both")
        return self


NO_INITIAL = InitialConfig.model_construct(delta=None, postgres=None)
"""The start of a table that starts with its topic's first record."""


def check_initial(
    declared: InitialConfig | None,
    table: TableSchema | None,
    upstream: Format | None,
    *,
    folder: Path,
    faults: Faults,
) -> InitialConfig:
    """The section with its files below `folder`; contradictions go to `faults`."""
    if declared is None:
        return NO_INITIAL
    start = declared.delta or declared.postgres
    if table is not None and start is not None and (reason := start.incompatibility_with_table(table)):
        faults.add(reason)
    delta = None if declared.delta is None else declared.delta.below(folder)
    postgres = check_postgres(declared.postgres, upstream, folder=folder, faults=faults)
    return InitialConfig.model_construct(delta=delta, postgres=postgres)
