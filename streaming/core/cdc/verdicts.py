"""What becomes of an event while its table is read: each by its own key and by its transaction, never by an LSN.

| the key is | the snapshot there sees the transaction | it does not |
| --- | --- | --- |
| released | APPLIES | APPLIES |
| in a chunk that the batch releases | HELD | FOLDS |
| in another chunk | HELD | WAITS |
| unread (the snapshot is `since`) | HELD: by every chunk to come, too | WAITS |

No event is dropped because of where its key lies: a chunk that is being read may turn out not to see it. Nor is one
because it arrived early: a transaction that is older than another one may become visible after it. Both halves of a
change of key are judged apart, so a row that moves over the position is neither lost nor doubled.

Nothing arrives for a released key that its chunk holds: see `state.values.reading`. A change of a key is seen
only if all before it are, as a transaction waits for those that have the row; so what a chunk does not hold of a key is
the end of its events, and may be folded over the chunk's row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.values.chunks import KeyRange
from state.values.order import at_most
from state.values.reading import TableRead
from state.values.transactions import EPOCH_BITS, TransactionSnapshot

Mask = npt.NDArray[np.bool_]
Transactions = npt.NDArray[np.int64]

NO_TRANSACTION = -1
"""Of an event that does not name one: a row of the connector's own snapshot, or the tombstone behind a delete.

It says nothing that chunks and the other events do not, so where a chunk is still to be released it counts as held.
"""
_EPOCH = 1 << EPOCH_BITS


class Verdict(IntEnum):
    """What becomes of an event. `HELD` is for good; `WAITS` is asked again in the next batch."""

    HELD = 0
    APPLIES = 1
    FOLDS = 2
    WAITS = 3


def verdicts(
    read: TableRead, due: int, keys: Sequence[pa.Array], transactions: Transactions
) -> npt.NDArray[np.int8]:
    """The `Verdict` of each of n events in a batch that releases the first `due` of the chunks.

    `keys`: the key columns, in key order, without nulls; `transactions` are widened numbers, or NO_TRANSACTION.
    `read` is as of the barrier that the batch starts from, with what was read by the time it was planned.
    """
    found = np.full(len(transactions), Verdict.HELD, dtype=np.int8)
    left = np.arange(len(transactions))
    for place in _places(read, due):
        if not len(left):
            break
        upto, verdict, snapshot = place
        inside = np.ones(len(left), np.bool_)
        if upto is not None:
            inside = at_most([column.take(pa.array(left)) for column in keys], upto)
        mine = left[inside]
        if snapshot is not None:
            mine = mine[~seen_by(snapshot, transactions[mine])]
        found[mine] = verdict
        left = left[~inside]
    return found


_Place = tuple[tuple[object, ...] | None, Verdict, TransactionSnapshot | None]


def _places(read: TableRead, due: int) -> Iterator[_Place]:
    """Upper keys that rise to +∞ (None), what becomes of events up to each that its snapshot does not see."""
    if read.released is not None:
        yield read.released.upto, Verdict.APPLIES, None
    folds = [(chunk.keys, Verdict.FOLDS, chunk.snapshot) for chunk in read.chunks[:due]]
    waits = [(chunk.keys, Verdict.WAITS, chunk.snapshot) for chunk in read.chunks[due:]]
    waits += [(rest.keys, Verdict.WAITS, rest.since) for rest in read.unread]
    yield from ((keys.upto, verdict, snapshot) for keys, verdict, snapshot in folds)
    yield from ((keys.upto, verdict, snapshot) for keys, verdict, snapshot in _in_order(waits))


_Range = tuple[KeyRange, Verdict, TransactionSnapshot]


def _in_order(ranges: Sequence[_Range]) -> list[_Range]:
    """They follow each other without a gap, so each begins where another one ends."""
    by_start = {each[0].after: each for each in ranges}
    uptos = {each[0].upto for each in ranges if each[0].upto is not None}
    found: list[_Range] = []
    if not ranges:
        return found
    [start] = [after for after in by_start if after not in uptos]
    while len(found) < len(ranges):
        found.append(by_start[start])
        start = found[-1][0].upto
    return found


def seen_by(snapshot: TransactionSnapshot, transactions: Transactions) -> Mask:
    """`TransactionSnapshot.sees` of each; NO_TRANSACTION counts as seen."""
    over = ~np.isin(transactions, np.array(snapshot.running, dtype=np.int64))
    result: Mask = (transactions < snapshot.xmin) | ((transactions < snapshot.xmax) & over)
    return result


def widened_each(transactions: Transactions, near: TransactionSnapshot) -> Transactions:
    """`widened` of each; NO_TRANSACTION stays as it is. Lower halves have to come without a sign."""
    behind = (near.xmax - transactions) % _EPOCH
    found = near.xmax - np.where(behind <= _EPOCH // 2, behind, behind - _EPOCH)
    found = np.where(found >= 0, found, found + _EPOCH)
    whole = (transactions >= _EPOCH) | (transactions == NO_TRANSACTION)
    result: Transactions = np.where(whole, transactions, found)
    return result
