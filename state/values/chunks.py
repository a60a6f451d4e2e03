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
"""What the logical log leaves out of the number of a transaction: how often these bits have run over."""
_EPOCH = 1 << EPOCH_BITS
_FORM = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):((?:[0-9]{1,20}(?:,[0-9]{1,20})*)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class TransactionSnapshot:
    """A `pg_snapshot`. Transactions below `xmin` are over, those from `xmax` on had not begun, `running` were open.

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
        """Whether what a transaction did is in rows that were read at this snapshot, if it was committed.

        A transaction that was rolled back is below `xmin` as well; but nothing of it is in the log.
        `transaction` is a 64-bit number (`widened`).
        """
        if transaction < self.xmin or transaction >= self.xmax:
            return transaction < self.xmin
        place = bisect_left(self.running, transaction)
        return place == len(self.running) or self.running[place] != transaction

    def holds(self, older: TransactionSnapshot) -> bool:
        """Whether it sees everything that another one sees: one that was taken before, of the same server."""
        return self.xmax >= older.xmax and not any(older.sees(each) for each in self.running)

    def to_text(self) -> str:
        """As PostgreSQL writes it: `xmin:xmax:running,…`."""
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.running))}"

    @classmethod
    def from_text(cls, text: str) -> TransactionSnapshot:
        """From the text of `pg_current_snapshot()`. Raises: ValueError."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError("not a snapshot of PostgreSQL")
        return cls(int(found[1]), int(found[2]), tuple(int(each) for each in found[3].split(",") if each))


def widened(transaction: int, near: TransactionSnapshot) -> int:
    """The 64-bit number of a transaction of which an event has the lower 32 bits.

    Of the numbers with these bits it is the one that is nearest to the snapshot's `xmax`. That is right within two
    billion transactions, which is as far as PostgreSQL lets any two live ones be apart; so `near` is to be a snapshot
    from about the time at which the event came. A number that does not fit into 32 bits is whole and comes back as it
    is; a negative one is what a reader makes of the upper half if it takes the 32 bits for a signed number.
    """
    if transaction >= _EPOCH:
        return transaction
    behind = (near.xmax - transaction) % _EPOCH
    found = near.xmax - behind if behind <= _EPOCH // 2 else near.xmax - behind + _EPOCH
    return found if found >= 0 else found + _EPOCH


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
