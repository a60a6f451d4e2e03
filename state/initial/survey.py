"""How a table in a database will be read, decided once, before anything is read of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.table import Column
from state.values.chunks import Chunk, KeyRange
from state.values.reading import TableRead
from state.values.transactions import TransactionSnapshot


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a table. A restored or promoted server, or a table that was created again, is another one."""

    system: str
    database: str
    table: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"system": self.system, "database": self.database, "table": self.table}

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Identity:
        """From what `to_dict` gave."""
        return cls(raw["system"], raw["database"], raw["table"])


@dataclass(frozen=True, slots=True)
class Survey:
    """Of a table that is to be copied: decided once, and to be kept with the state.

    The ranges follow each other up to the last key that there was. `tail` is the chunk behind them: without a row, and
    with the snapshot that saw none there. So a table that is appended to does not keep the copy from its end.
    """

    ranges: tuple[KeyRange, ...]
    tail: Chunk | None
    """None for a whole table, which one snapshot sees."""
    rows: int
    """As the server estimates them."""
    size: int
    """Bytes that it takes in the database, without its indexes."""
    first: TransactionSnapshot
    """Taken before any row is read, and as that of the tail."""

    def begin(self) -> TableRead:
        """The reading at its beginning; the tail has yet to be read, too."""
        bounds = [keys.upto for keys in self.ranges if keys.upto is not None]
        return TableRead.begin(self.first, bounds)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "ranges": [keys.to_list() for keys in self.ranges],
            "tail": None if self.tail is None else self.tail.to_dict(),
            "rows": self.rows,
            "size": self.size,
            "first": self.first.to_text(),
        }

    @classmethod
    def from_dict(cls, raw: dict[str, Any], key_columns: Sequence[Column]) -> Survey:
        """From what `to_dict` gave."""
        tail = raw["tail"]
        return cls(
            tuple(KeyRange.from_list(keys, key_columns) for keys in raw["ranges"]),
            None if tail is None else Chunk.from_dict(tail, key_columns),
            raw["rows"],
            raw["size"],
            TransactionSnapshot.from_text(raw["first"]),
        )
