"""Starts of a table, as kept in the state's binding: the declaration, what was decided once, and a copy's progress.

Nothing here imports numpy: `status` asks it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from schemas.json.debezium_values import TimeMode
from schemas.kinds.initial import DeltaStart
from schemas.table import Column, TableSchema
from state.columns import EPOCH
from state.replica import LOG_BOUNDS, Replica
from state.storage import DataFile
from state.values.chunks import Chunk, KeyRange, TransactionSnapshot
from state.values.reading import TableRead


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a table. A restored or promoted server, or a table created again, has another one."""

    system: str
    database: str
    table: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The plan of reading a table from its database: decided once, before any row is read, and kept with the state.

    The ranges follow each other up to the last key at that time. `tail` is the chunk behind them: without a row, and
    with the snapshot that saw none there. So the copy ends even if the table is appended to all the time.
    """

    ranges: tuple[KeyRange, ...]
    tail: Chunk | None
    """None for a whole table, which one snapshot sees."""
    rows: int
    """The server's estimate."""
    size: int
    """Bytes of the table in the database, without its indexes."""
    first: TransactionSnapshot
    """Taken before any row is read; also the snapshot of the tail."""

    def begin(self) -> TableRead:
        """The reading at its beginning; the tail has yet to be read, too."""
        bounds = [keys.upto for keys in self.ranges if keys.upto is not None]
        return TableRead.begin(self.first, bounds)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, which `from_dict` reads back."""
        return {
            "ranges": [keys.to_list() for keys in self.ranges],
            "tail": None if self.tail is None else self.tail.to_dict(),
            "rows": self.rows,
            "size": self.size,
            "first": self.first.to_text(),
        }

    @classmethod
    def from_dict(cls, raw: dict[str, Any], key_columns: Sequence[Column]) -> Survey:
        """Read what `to_dict` gave."""
        tail = raw["tail"]
        return cls(
            tuple(KeyRange.from_list(keys, key_columns) for keys in raw["ranges"]),
            None if tail is None else Chunk.from_dict(tail, key_columns),
            raw["rows"],
            raw["size"],
            TransactionSnapshot.from_text(raw["first"]),
        )


KEY = "initial"
"""The key in a state's binding, which is the journal's `table`."""
_KIND = "kind"
_POSTGRES: Literal["postgres"] = "postgres"
_TOPIC: Literal["topic"] = "topic"


@dataclass(frozen=True, slots=True)
class Start:
    """A start from a Delta table.

    `offsets[p]` is the first record of partition p that is read; `rows` are the table's, None where unknown. `unread`,
    of a new one, are the names of its columns that the replica has not.
    """

    declared: DeltaStart
    offsets: tuple[int, ...]
    rows: int | None
    unread: tuple[str, ...] = ()

    def bound(self) -> dict[str, Any]:
        """The binding's entry, with JSON values."""
        return {KEY: {**self.declared.to_dict(), "from": list(self.offsets), "rows": self.rows}}

    @classmethod
    def from_binding(cls, binding: str) -> Start | None:
        """The start in a state's binding; None for another kind of start."""
        raw = json.loads(binding).get(KEY)
        if raw is None or _KIND in raw:
            return None
        return cls(DeltaStart.from_dict(raw), tuple(raw["from"]), raw["rows"])


@dataclass(frozen=True, slots=True)
class TopicStart:
    """A start of rows without identity from the earliest records that a topic has, where older ones are gone.

    `offsets[p]` is the first record of partition p that is read.
    """

    offsets: tuple[int, ...]

    def bound(self) -> dict[str, Any]:
        """The binding's entry, with JSON values."""
        return {KEY: {_KIND: _TOPIC, "from": list(self.offsets)}}

    @classmethod
    def from_binding(cls, binding: str) -> TopicStart | None:
        """The start in a state's binding; None for another kind of start."""
        raw = json.loads(binding).get(KEY)
        return None if raw is None or raw.get(_KIND) != _TOPIC else cls(tuple(raw["from"]))

    def __str__(self) -> str:
        return f"the earliest records that the topic had, from offsets {', '.join(map(str, self.offsets))}"


@dataclass(frozen=True, slots=True)
class DatabaseStart:
    """A start from a table of PostgreSQL.

    `declared` is the bound declaration (`PostgresStart.to_dict`). `time` and `publication` are the connector's, None
    where they are not known.
    """

    declared: dict[str, Any]
    offsets: tuple[int, ...]
    identity: Identity
    survey: Survey
    time: TimeMode | None = None
    publication: str | None = None

    def bound(self) -> dict[str, Any]:
        """The binding's entry, with JSON values."""
        return {
            KEY: {
                _KIND: _POSTGRES,
                "declared": self.declared,
                "from": list(self.offsets),
                "identity": asdict(self.identity),
                "survey": self.survey.to_dict(),
                "time": self.time,
                "publication": self.publication,
            }
        }

    @classmethod
    def from_binding(cls, binding: str, table: TableSchema) -> DatabaseStart | None:
        """The start in a state's binding; None for another kind of start."""
        raw = json.loads(binding).get(KEY)
        if raw is None or raw.get(_KIND) != _POSTGRES:
            return None
        return cls(
            raw["declared"],
            tuple(raw["from"]),
            Identity(**raw["identity"]),
            Survey.from_dict(raw["survey"], table.key_columns),
            raw["time"],
            raw["publication"],
        )

    def __str__(self) -> str:
        return f"table {self.declared['table']} of PostgreSQL and slot {self.declared['slot']}"


AnyStart = Start | DatabaseStart | TopicStart
"""A start from elsewhere than the first record of the topic."""


ALL = (1 << 62) - 1
"""The log's mark `copied` once everything is copied."""


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Rows that were copied, and of these sorted into the base; `of` is how many there are, None where unknown."""

    copied: int
    sorted: int
    of: int | None


def progress_of(replica: Replica, of: int | None) -> CopyProgress | None:
    """The progress of the copy into a replica; None once it is done."""
    if replica.log.copied == ALL:
        return None
    sorted_ = sum(file.rows for file in replica.base.files())
    return CopyProgress(sum(file.rows for file in staged(replica)), sorted_, of)


def staged(replica: Replica) -> list[DataFile]:
    """Files of the log with rows that were copied and wait to be sorted, or were."""
    return [file for file in replica.log.files(LOG_BOUNDS) if file.bounds[EPOCH][1] == 0]
