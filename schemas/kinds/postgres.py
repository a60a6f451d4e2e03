"""The start of a table from one of PostgreSQL, read in chunks in parallel with Debezium's events of it.

What carries it out is in `streaming.postgres`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.faults import Faults
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

    def misfit_of(self, table: TableSchema) -> str | None:
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
