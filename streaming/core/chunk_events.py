"""Events of a table that is being read from its database, merged with the chunks that were read.

`verdicts` decides what becomes of each event by its own key and its transaction, never by an LSN; `folded` brings the
events that the rows of a chunk lack into them; `Proofs` keeps how far the connector is known to be
(`state.values.reading` has how far the table was read and released).

| the key is | the snapshot there sees the transaction | it does not |
| --- | --- | --- |
| released | APPLIES | APPLIES |
| in a chunk that the batch releases | HELD | FOLDS |
| in another chunk | HELD | WAITS |
| unread (the snapshot is `since`) | HELD: by every chunk to come, too | WAITS |

No event is dropped because of where its key lies: the chunk that is being read may not see it. Nor because it arrived
early: an older transaction may become visible after a newer one. The two images of a change of key are decided
separately, so a row that moves over the position is neither lost nor doubled.

Nothing arrives for a released key that its chunk holds: see `state.values.reading`. A change of a key is seen
only if all before it are, as a transaction waits for those that have the row; so what a chunk does not hold of a key is
the end of its events, and may be folded over the chunk's row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.records import Op
from state.values.arrays import at_most, changes_of_key, sort_order
from state.values.chunks import EPOCH_BITS, Chunk, KeyRange, Streamed, TransactionSnapshot
from state.values.reading import TableRead

Mask = npt.NDArray[np.bool_]
Transactions = npt.NDArray[np.int64]

NO_TRANSACTION = -1
"""Of an event that does not name one: a row of the connector's own snapshot, or the tombstone behind a delete.

It adds nothing to the chunks and the other events, so where a chunk is still to be released it counts as held.
"""
_EPOCH = 1 << EPOCH_BITS


class Verdict(IntEnum):
    """The verdict on an event. `HELD` is final: a chunk's rows have it; `WAITS` is decided again in the next batch."""

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
    for upto, verdict, snapshot in _verdict_ranges(read, due):
        if not len(left):
            break
        inside = np.ones(len(left), np.bool_)
        if upto is not None:
            inside = at_most([column.take(pa.array(left)) for column in keys], upto)
        mine = left[inside]
        if snapshot is not None:
            mine = mine[~seen_by(snapshot, transactions[mine])]
        found[mine] = verdict
        left = left[~inside]
    return found


_VerdictRange = tuple[tuple[object, ...] | None, Verdict, TransactionSnapshot | None]


def _verdict_ranges(read: TableRead, due: int) -> Iterator[_VerdictRange]:
    """Upper keys that rise to +∞ (None), with the verdict on events up to each that the snapshot does not see."""
    if read.released is not None:
        yield read.released.upto, Verdict.APPLIES, None
    folds = [(chunk.keys, Verdict.FOLDS, chunk.snapshot) for chunk in read.chunks[:due]]
    waits = [(chunk.keys, Verdict.WAITS, chunk.snapshot) for chunk in read.chunks[due:]]
    waits += [(rest.keys, Verdict.WAITS, rest.since) for rest in read.unread]
    yield from ((keys.upto, verdict, snapshot) for keys, verdict, snapshot in folds)
    yield from ((keys.upto, verdict, snapshot) for keys, verdict, snapshot in _in_order(waits))


_Range = tuple[KeyRange, Verdict, TransactionSnapshot]


def _in_order(ranges: Sequence[_Range]) -> list[_Range]:
    """The ranges in key order. They follow each other without a gap, so each begins where another one ends."""
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


Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChunkEvents:
    """n events in the order of each key: the table's columns (of a DELETE its key is enough), and the values left out.

    `left_out[column]` are the indices of the events that leave out a column's value because it did not change; `column`
    is an index, too.
    """

    ops: npt.NDArray[np.int8]
    rows: pa.Table
    left_out: dict[int, Indices]


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """`rows` in key order. `lacking` are events, by index, that leave a value out of a row that does not exist."""

    rows: pa.Table
    lacking: Indices


def folded(stored: pa.Table, events: ChunkEvents, key_names: Sequence[str]) -> FoldedRows:
    """The last row of each key that has one. `stored` has each key once, and the columns of `events.rows`."""
    count, both = len(stored), pa.concat_tables([stored, events.rows.cast(stored.schema)]).combine_chunks()
    keys = [both[name].combine_chunks() for name in key_names]
    order = sort_order(keys).to_numpy().astype(np.int64)  # stable: the stored row, then its events
    firsts = changes_of_key([key.take(pa.array(order)) for key in keys])
    before = np.full(len(both), -1, dtype=np.int64)
    before[order[1:]] = np.where(firsts[1:], -1, order[:-1])
    is_row = np.concatenate([np.ones(count, np.bool_), events.ops != Op.DELETE])
    lasts = order[np.append(firsts[1:], True)] if len(both) else order
    lasts = lasts[is_row[lasts]]
    columns, lacking = dict(zip(both.column_names, both.columns, strict=True)), [np.zeros(0, np.int64)]
    for column, left_out in events.left_out.items():
        sources = _sources(before, is_row, count + left_out)
        lacking.append(left_out[sources[count + left_out] < 0])
        sources_or_any = pa.array(np.maximum(sources, 0))
        columns[both.column_names[column]] = both.column(column).take(sources_or_any)
    rows = pa.table(columns, schema=stored.schema).take(pa.array(lasts))
    return FoldedRows(rows, np.unique(np.concatenate(lacking)))


def _sources(before: Indices, is_row: npt.NDArray[np.bool_], without: Indices) -> Indices:
    """The row that each row's value comes from, -1 for none. Several events in a row may leave it out."""
    origin = np.arange(len(before) + 1)
    previous = before[without]
    origin[without] = np.where((previous >= 0) & is_row[previous], previous, -1)
    origin[-1] = len(before)
    origin = np.where(origin < 0, len(before), origin)
    while not (origin[origin] == origin).all():
        origin = origin[origin]
    return np.where(origin[:-1] == len(before), -1, origin[:-1])


class Proofs:
    """The proofs (`Streamed`) of one slot, in the order in which they were got: LSNs and ends rise.

    For a chunk the first proof that reaches it is the best one: its ends are the lowest, so the chunk is due first.
    Kept are that one of each waiting chunk, and the newest.
    """

    def __init__(self) -> None:
        self._kept: list[Streamed] = []

    @property
    def kept(self) -> tuple[Streamed, ...]:
        return tuple(self._kept)

    @property
    def lsn(self) -> int:
        """The LSN of the newest proof; -1 before the first."""
        return self._kept[-1].lsn if self._kept else -1

    def add(self, proof: Streamed) -> None:
        """Add a proof. One that reaches no farther than the newest is useless, because its ends are higher."""
        if proof.lsn > self.lsn:
            self._kept.append(proof)

    def keep_for(self, waiting: Iterable[Chunk]) -> None:
        """Drop the proofs that neither these chunks nor later ones need."""
        lsns = [proof.lsn for proof in self._kept]
        needed = {bisect_left(lsns, chunk.written_lsn) for chunk in waiting} | {len(lsns) - 1}
        self._kept = [proof for index, proof in enumerate(self._kept) if index in needed]
