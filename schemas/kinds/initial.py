"""Starts of a table: with the first record of its topic, from a Delta table, or from a table of PostgreSQL.

What carries a start out is in `state.initial` and `streaming.service.initial`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from schemas.faults import Faults, brief
from schemas.formats.protocol import Format
from schemas.kinds.postgres import PostgresStart, check_postgres
from schemas.table import TableSchema


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

    def misfit_of(self, table: TableSchema) -> str | None:
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
    if table is not None and start is not None and (misfit := start.misfit_of(table)):
        faults.add(misfit)
    delta = None if declared.delta is None else declared.delta.below(folder)
    postgres = check_postgres(declared.postgres, upstream, folder=folder, faults=faults)
    return InitialConfig.model_construct(delta=delta, postgres=postgres)
