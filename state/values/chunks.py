"""Chunks of a table in a database: the rows of a range of keys as one snapshot sees them.

    −∞ ──── chunk ────┤──── chunk ────┤── chunk ──┤  under way   ├───────── to be read ───────── +∞
             S1               S2           S3

Chunks of one reader follow each other without a gap, each with a snapshot that is newer than the one before. Several
readers have a range each; then chunks of different ranges come in any order.

A snapshot (`TransactionSnapshot`) decides whether a row that was read holds a change already; LSNs never do: of two
transactions that run at the same time, the one with the lower LSNs may become visible later. Subtransactions need no
care: snapshots and the logical log both name the transaction that they belong to.

Source: https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-INFO-SNAPSHOT.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.position import Key, order_key, position_from_text, position_to_text
from schemas.table import Column

EPOCH_BITS = 32
"""Bits of a transaction's number in the logical log, which leaves out the upper half: the count of wrap-arounds."""
_EPOCH = 1 << EPOCH_BITS
_FORM = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):((?:[0-9]{1,20}(?:,[0-9]{1,20})*)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class TransactionSnapshot:
    """A `pg_snapshot`: transactions below `xmin` are over, those from `xmax` on had not begun, `running` were open.

    All of them are 64-bit numbers. `running` rises, and lies between `xmin` and `xmax`, which is exclusive.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rises = all(low < high for low, high in zip(self.running, self.running[1:], strict=False))
        inside = all(self.xmin <= each < self.xmax for each in self.running)
        if not 0 < self.xmin <= self.xmax < 1 << 63 or not rises or not inside:
            raise ValueError("a snapshot whose numbers contradict each other")

    def sees(self, transaction: int) -> bool:
        """True if rows that were read at this snapshot hold the changes of a committed transaction.

        A transaction that was rolled back is below `xmin` as well, but has no events. `transaction` is a 64-bit number
        (`widened`).
        """
        if transaction < self.xmin or transaction >= self.xmax:
            return transaction < self.xmin
        index = bisect_left(self.running, transaction)
        return index == len(self.running) or self.running[index] != transaction

    def holds(self, older: TransactionSnapshot) -> bool:
        """True if it sees everything that `older` sees, which was taken before it on the same server."""
        return self.xmax >= older.xmax and not any(older.sees(each) for each in self.running)

    def to_text(self) -> str:
        """PostgreSQL's text: `xmin:xmax:running,…`."""
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.running))}"

    @classmethod
    def from_text(cls, text: str) -> TransactionSnapshot:
        """From the text of `pg_current_snapshot()`. Raises: ValueError."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError("not a snapshot of PostgreSQL")
        return cls(int(found[1]), int(found[2]), tuple(int(each) for each in found[3].split(",") if each))


def widened(transaction: int, near: TransactionSnapshot) -> int:
    """The 64-bit number of a transaction from the lower 32 bits in an event.

    Of the numbers with these bits it is the one nearest to the snapshot's `xmax`. That is right within two billion
    transactions, the maximal distance of two live ones in PostgreSQL; so `near` has to be a snapshot from about the
    time of the event. A number of more than 32 bits is whole and is returned as it is; a negative one stands for the
    upper half of the unsigned numbers, from a reader that takes the 32 bits as signed.
    """
    if transaction >= _EPOCH:
        return transaction
    behind = (near.xmax - transaction) % _EPOCH
    found = near.xmax - behind if behind <= _EPOCH // 2 else near.xmax - behind + _EPOCH
    return found if found >= 0 else found + _EPOCH


def bounds_to_list(after: Key | None, upto: Key | None) -> list[str | None]:
    """JSON values of the bounds of a range of keys, null for none."""
    return [None if bound is None else position_to_text(bound) for bound in (after, upto)]


def bounds_from_list(
    raw: Sequence[str | None], key_columns: Sequence[Column]
) -> tuple[Key | None, Key | None]:
    """Read what `bounds_to_list` gave. Raises: ValueError for any other value."""
    after, upto = (None if text is None else position_from_text(text, key_columns) for text in raw)
    return after, upto


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys (after, upto] in key order. None is −∞ for `after` and +∞ for `upto`. A bound need not be a key."""

    after: Key | None = None
    upto: Key | None = None

    def __post_init__(self) -> None:
        if self.after is not None and self.upto is not None and order_key(self.after) >= order_key(self.upto):
            raise ValueError("a range of keys that ends where it begins, or before")

    def holds(self, key: Key) -> bool:
        """True if the key is in the range."""
        ordered = order_key(key)
        above = self.after is None or order_key(self.after) < ordered
        return above and (self.upto is None or ordered <= order_key(self.upto))

    def to_list(self) -> list[str | None]:
        """JSON values: the text of a position for each bound, null for none."""
        return bounds_to_list(self.after, self.upto)

    @classmethod
    def from_list(cls, raw: Sequence[str | None], key_columns: Sequence[Column]) -> KeyRange:
        """Read what `to_list` gave. Raises: ValueError for any other value."""
        return cls(*bounds_from_list(raw, key_columns))


@dataclass(frozen=True, slots=True)
class Chunk:
    """All rows of `keys` that `snapshot` sees; `rows` is how many, which may be none.

    `written_lsn` is the end of the database's log (`pg_current_wal_insert_lsn()`, as a number) when the snapshot was
    taken, or later: the commit of each transaction that it sees lies before it. It has to be read in the transaction
    that reads the rows, after the snapshot is taken.
    """

    keys: KeyRange
    snapshot: TransactionSnapshot
    written_lsn: int
    rows: int

    def __post_init__(self) -> None:
        if not 0 <= self.written_lsn < 1 << 64 or self.rows < 0:
            raise ValueError("a chunk whose numbers are below 0 or too large")

    def to_dict(self) -> dict[str, Any]:
        """JSON values, which `from_dict` reads back."""
        return {
            "keys": self.keys.to_list(),
            "snapshot": self.snapshot.to_text(),
            "written": lsn_to_text(self.written_lsn),
            "rows": self.rows,
        }

    @classmethod
    def from_dict(cls, raw: dict[str, Any], key_columns: Sequence[Column]) -> Chunk:
        """Read what `to_dict` gave. Raises: ValueError, KeyError for any other value."""
        return cls(
            KeyRange.from_list(raw["keys"], key_columns),
            TransactionSnapshot.from_text(raw["snapshot"]),
            lsn_from_text(raw["written"]),
            raw["rows"],
        )


@dataclass(frozen=True, slots=True)
class Streamed:
    """A proof of the connector's progress: every event of a commit up to `lsn` lies before `ends` in the topic.

    `ends` are exclusive, one a partition. To get one, read the slot's `confirmed_flush_lsn` first, and the topic's ends
    (those of open transactions included) only then. The connector confirms only records that Kafka has acknowledged.
    """

    lsn: int
    ends: tuple[int, ...]


def lsn_to_text(lsn: int) -> str:
    """PostgreSQL's text of a `pg_lsn`: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_from_text(text: str) -> int:
    """The number of a `pg_lsn`. Raises: ValueError."""
    high, slash, low = text.partition("/")
    if not slash or not 1 <= len(high) <= 8 or not 1 <= len(low) <= 8:
        raise ValueError("not a pg_lsn")
    return int(high, 16) << 32 | int(low, 16)
