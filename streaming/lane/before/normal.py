"""Changes without `before`, made a legal changelog (docs/contract.md#upstreams-without-the-row-before).

A record of such an upstream says what a key's row is now, or that there is none. With the rows as of the batch's start
it is an INSERT, an UPDATE or a DELETE with its `before`; a delete of an absent key is nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.records import Op
from streaming.source.decoded import UNCHANGED, Changes
from streaming.source.records import Bools

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stored:
    """The rows of n keys: the table's columns, and which keys have a row. Columns hold null where there is none."""

    present: Bools
    columns: tuple[pa.Array, ...]


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """The grouping of n changes by their keys.

    `distinct` are the keys, `number[i]` which of them change i is of; `previous[i]` is the change of that key before i,
    -1 for none, and `last[k]` the last change of distinct key k.
    """

    distinct: pa.Array
    number: Indices
    previous: Indices
    last: Indices

    def key(self, change: int) -> bytes:
        """The encoded key of a change."""
        return bytes(self.distinct[int(self.number[change])].as_py())

    @classmethod
    def of(cls, keys: pa.Array) -> KeyOrder:
        """Groups the encoded keys of changes in order, without nulls."""
        found = keys.dictionary_encode()
        number = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        by_key = np.argsort(number, kind="stable")
        follows = number[by_key][1:] == number[by_key][:-1]
        previous = np.full(len(number), -1, dtype=np.int64)
        previous[by_key[1:][follows]] = by_key[:-1][follows]
        last = np.full(len(found.dictionary), -1, dtype=np.int64)
        last[number] = np.arange(len(number))  # of several the last one stays
        return cls(found.dictionary, number, previous, last)


def normalised(changes: Changes, order: KeyOrder, stored: Stored) -> Changes:
    """The changes with their ops and rows before; `stored` are those of `order.distinct`, as of the first change.

    All changes have to be decoded and without a fault, with a row after or none.
    """
    has_after = changes.ops != Op.DELETE
    follows = order.previous >= 0
    present = np.where(follows, has_after[order.previous], stored.present[order.number])
    ops = np.where(has_after, np.where(present, Op.UPDATE, Op.INSERT), Op.DELETE).astype(np.int8)
    # Of stored rows and the batch's own, one behind the other.
    source = np.where(follows, len(order.distinct) + order.previous, order.number)
    places = pa.array(source, mask=~present)
    before = tuple(
        pa.concat_arrays([old, new]).take(places)
        for old, new in zip(stored.columns, changes.after, strict=True)
    )
    made = replace(changes, ops=ops, before=before)
    kept = has_after | present
    return made if kept.all() else made.filtered(kept)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A change, by its location, that leaves out the value of a column, by index, which is not stored."""

    partition: int
    offset: int
    column: int


def leaves_out(changes: Changes) -> bool:
    """True if any of the changes leaves a value out."""
    rows = changes.rows
    return UNCHANGED in rows.column_names and len(pc.list_flatten(rows[UNCHANGED])) > 0


def with_unchanged(
    changes: Changes, order: KeyOrder, stored: Stored
) -> tuple[Changes, tuple[Unavailable, ...]]:
    """The changes with left-out values filled in, and those whose value is not stored. Input as of `normalised`."""
    if not leaves_out(changes):
        return changes, ()
    left_out = pc.list_flatten(changes.rows[UNCHANGED]), pc.list_parent_indices(changes.rows[UNCHANGED])
    columns, parents = (each.combine_chunks().to_numpy(zero_copy_only=False) for each in left_out)
    after, lacking = list(changes.after), list[tuple[int, int]]()
    for index in np.unique(columns).tolist():
        mine = parents[columns == index]
        places, has_row = _sources(changes, order, stored, mine)
        lacking += [(row, index) for row in mine[~has_row[mine]].tolist()]
        values = pa.concat_arrays([stored.columns[index], after[index]])
        after[index] = values.take(pa.array(places))
    partitions, offsets = changes.partitions, changes.offsets
    unavailable = (
        Unavailable(int(partitions[row]), int(offsets[row]), index) for row, index in sorted(lacking)
    )
    return replace(changes, after=tuple(after)), tuple(unavailable)


def _sources(changes: Changes, order: KeyOrder, stored: Stored, without: Indices) -> tuple[Indices, Bools]:
    """The index of each change's value in stored rows followed by changes, and flags: True if that row exists."""
    count = len(order.distinct)
    before = np.where(order.previous >= 0, count + order.previous, order.number)
    origin = np.arange(count + len(changes))
    origin[count + without] = before[without]
    while not (origin[origin] == origin).all():  # the change before may leave it out, too
        origin = origin[origin]
    places = origin[count:]
    exists = np.concatenate([stored.present, changes.ops != Op.DELETE])
    return places, exists[places]


@dataclass(frozen=True, slots=True)
class Written:
    """The result of changes: keys with their last rows (the table's columns), and `gone`, keys whose row is deleted."""

    keys: pa.Array
    columns: tuple[pa.Array, ...]
    gone: pa.Array


def written(changes: Changes, order: KeyOrder) -> Written:
    """The result of changes as they came, deletes of absent keys included."""
    has_row = pa.array(changes.ops[order.last] != Op.DELETE)
    rows = pa.array(order.last).filter(has_row)
    return Written(
        keys=order.distinct.filter(has_row),
        columns=tuple(column.take(rows) for column in changes.after),
        gone=order.distinct.filter(pc.invert(has_row)),
    )
