"""Chunks of a table in a database: the rows of a range of keys as one snapshot sees them.

    −∞ ──── chunk ────┤──── chunk ────┤── chunk ──┤  under way   ├───────── to be read ───────── +∞
             S1               S2           S3

Chunks of one reader follow each other without a gap, each with a snapshot that is newer than the one before. Several
readers have a range each; then chunks of different ranges come in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.position import Key, order_key, position_from_text, position_to_text
from schemas.table import Column
from state.values.transactions import TransactionSnapshot


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys (after, upto] in key order. None is −∞ for `after` and +∞ for `upto`. A bound need not be a key."""

    after: Key | None = None
    upto: Key | None = None

    def __post_init__(self) -> None:
        if self.after is not None and self.upto is not None and order_key(self.after) >= order_key(self.upto):
            raise ValueError("a range of keys that ends where it begins, or before")

    def holds(self, key: Key) -> bool:
        """Whether a key is in it."""
        ordered = order_key(key)
        above = self.after is None or order_key(self.after) < ordered
        return above and (self.upto is None or ordered <= order_key(self.upto))

    def to_list(self) -> list[str | None]:
        """As JSON values: the text of a position for each bound."""
        return [None if bound is None else position_to_text(bound) for bound in (self.after, self.upto)]

    @classmethod
    def from_list(cls, raw: Sequence[str | None], key_columns: Sequence[Column]) -> KeyRange:
        """From what `to_list` gave. Raises: ValueError for what is no range of these columns."""
        after, upto = (None if text is None else position_from_text(text, key_columns) for text in raw)
        return cls(after, upto)


@dataclass(frozen=True, slots=True)
class Chunk:
    """All rows of `keys` that `snapshot` sees; `rows` is how many, which may be none.

    `written_lsn` is how far the database's log was written (`pg_current_wal_insert_lsn()`, as a number) when the
    snapshot was taken, or later: the commit of each transaction that it sees lies before. It has to be asked for in
    the transaction that reads, not before the snapshot is there.
    """

    keys: KeyRange
    snapshot: TransactionSnapshot
    written_lsn: int
    rows: int

    def __post_init__(self) -> None:
        if not 0 <= self.written_lsn < 1 << 64 or self.rows < 0:
            raise ValueError("a chunk whose numbers are below 0 or too large")

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "keys": self.keys.to_list(),
            "snapshot": self.snapshot.to_text(),
            "written": lsn_to_text(self.written_lsn),
            "rows": self.rows,
        }

    @classmethod
    def from_dict(cls, raw: dict[str, Any], key_columns: Sequence[Column]) -> Chunk:
        """From what `to_dict` gave. Raises: ValueError, KeyError for what that never gives."""
        return cls(
            KeyRange.from_list(raw["keys"], key_columns),
            TransactionSnapshot.from_text(raw["snapshot"]),
            lsn_from_text(raw["written"]),
            raw["rows"],
        )


@dataclass(frozen=True, slots=True)
class Streamed:
    """A proof of how far the connector is: every event of a commit up to `lsn` lies before `ends` in the topic.

    `ends` are exclusive, one a partition. To get one: ask the slot's `confirmed_flush_lsn` first, and the topic's ends
    (those of open transactions included) only then. The connector confirms what Kafka has acknowledged.
    """

    lsn: int
    ends: tuple[int, ...]


def lsn_to_text(lsn: int) -> str:
    """As PostgreSQL writes a `pg_lsn`: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_from_text(text: str) -> int:
    """Of a `pg_lsn`. Raises: ValueError."""
    high, slash, low = text.partition("/")
    if not slash or not 1 <= len(high) <= 8 or not 1 <= len(low) <= 8:
        raise ValueError("not a pg_lsn")
    return int(high, 16) << 32 | int(low, 16)
