"""Transactions of PostgreSQL: which of them a snapshot sees.

Whether a row that was read holds a change already is decided by this and never by comparing LSNs: of two transactions
that run at the same time, the one with the lower LSNs may be the one that is seen later. Subtransactions need no
care: snapshots and the logical log both name the transaction that they belong to.

Source: https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-INFO-SNAPSHOT.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

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
