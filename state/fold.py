"""The fold: new base files for the vnodes that changed, so that the base holds everything up to a barrier.

One part is a run of vnodes, folded on its own and anywhere: base rows and log rows of a key stand together, in the
order of their offsets, base first. The last one stays if it is no DELETE. On the way the changelog's legality is
checked, which the path of every row leaves to this place: INSERT only of an absent key, UPDATE and DELETE only of a
present one, `before` equal to what is there, all changes of a key from one partition. What is illegal is counted and
told, and the fold goes on: the outputs have had these changes long ago, the last change of a key decides either way,
and a service that stopped here would meet the same log at its next start.

Files are written here and committed by `Replica.commit_fold`; those of a fold that was not are left-overs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import Code
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.order import arrays, changes_of_key, sort_order
from state.replica import BASE_PATH, LOG_PATH, BaseFile, ReplicaFiles
from state.row_hash import row_hashes
from state.storage import DataFile, Storage

ROWS_PER_FILE = 100_000
"""Rows of a base file: small enough that a slice rarely reads much more than it takes."""
ROWS_PER_GROUP = 16_384
"""Rows of a Parquet row group, which a reader can skip."""
ROWS_PER_PART = 100_000
"""Rows that a part should read: 0.2 s of a core, for which a batch may have to wait."""

_ILLEGAL = (
    Code.KEY_IN_TWO_PARTITIONS,
    Code.INSERT_EXISTING_KEY,
    Code.DELETE_MISSING_KEY,
    Code.OLD_ROW_MISMATCH,
)
"""What a change of the log can be charged with; the first that fits counts."""
_LEGAL = -1

Mask = npt.NDArray[np.bool_]
_Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Illegal:
    """Changes that contradict the table in one way; `first` is the lowest of their places: partition, offset."""

    count: int
    first: tuple[int, int]

    def __or__(self, other: Illegal) -> Illegal:
        return Illegal(self.count + other.count, min(self.first, other.first))


@dataclass(frozen=True)
class FoldPart:
    """Some vnodes, and the files that they are in as of a version whose log ends at the barrier to fold to."""

    storage: Storage
    table: TableSchema
    vnodes: range
    files: ReplicaFiles


@dataclass(frozen=True)
class FoldResult:
    """Of one part or of several: files made, files whose place they take, vnodes that had changes, rows read."""

    added: Sequence[DataFile] = ()
    removed: Sequence[BaseFile] = ()
    vnodes: int = 0
    rows_read: int = 0
    illegal: Mapping[Code, Illegal] = field(default_factory=dict)

    def __or__(self, other: FoldResult) -> FoldResult:
        illegal = dict(self.illegal)
        for code, found in other.illegal.items():
            illegal[code] = illegal[code] | found if code in illegal else found
        return FoldResult(
            [*self.added, *other.added],
            [*self.removed, *other.removed],
            self.vnodes + other.vnodes,
            self.rows_read + other.rows_read,
            illegal,
        )


def parts_of(storage: Storage, table: TableSchema, files: ReplicaFiles) -> list[FoldPart]:
    """All vnodes, in parts of about `ROWS_PER_PART` rows; a vnode is never divided."""
    count = table.vnode_count
    stored, of_log = files.rows_by_vnode(count) if files.base else {}, -(-files.log_rows // count)
    parts: list[FoldPart] = []
    first = rows = 0
    for vnode in range(count):
        rows += stored.get(vnode, 0) + of_log
        if rows >= ROWS_PER_PART or vnode == count - 1:
            vnodes = range(first, vnode + 1)
            parts.append(FoldPart(storage, table, vnodes, files.of_vnodes(frozenset(vnodes))))
            first, rows = vnode + 1, 0
    return parts


def fold_part(part: FoldPart) -> FoldResult:
    """Fold some vnodes. Raises: StateError when a file can't be read; OSError when none can be written."""
    log = _log_rows(part)
    dirty = pc.unique(log[VNODE]).to_pylist()
    if not dirty:
        return FoldResult()
    replaced = [file for vnode in dirty for file in part.files.base.get(vnode, ())]
    history = _History(part.table, pa.concat_tables([log, *(_base_rows(part, file) for file in replaced)]))
    return FoldResult(
        list(_write(part, history.kept())), replaced, len(dirty), len(history), history.illegal()
    )


def _log_rows(part: FoldPart) -> pa.Table:
    vnodes = (pc.field(VNODE) >= part.vnodes.start) & (pc.field(VNODE) < part.vnodes.stop)
    wanted = vnodes & (pc.field(EPOCH) > part.files.folded_epoch)
    paths = [file.path for file in part.files.log]
    return part.storage.read_parquet(LOG_PATH, paths, log_schema(part.table), wanted=wanted)


def _base_rows(part: FoldPart, file: BaseFile) -> pa.Table:
    """Base rows as INSERTs before every offset."""
    schema = log_schema(part.table)
    own = {VNODE: file.vnode, EPOCH: 0, PARTITION: -1, OFFSET: -1, OP: Op.INSERT.value, BEFORE_HASH: None}
    stored = pa.schema([schema.field(name) for name in part.table.column_names])
    rows = part.storage.read_parquet(BASE_PATH, [file.path], stored)
    constant = {
        name: pa.repeat(pa.scalar(value, schema.field(name).type), rows.num_rows)
        for name, value in own.items()
    }
    return pa.table({**constant, **{name: rows[name] for name in stored.names}}, schema=schema)


class _History:
    """n rows of base and log in the order of vnode, key and offset."""

    def __init__(self, table: TableSchema, rows: pa.Table) -> None:
        keys = [VNODE, *table.primary_key]
        order = sort_order(arrays(rows, [*keys, OFFSET]))
        self._table = table
        self._rows = rows.take(order).combine_chunks()
        self._is_first = changes_of_key(arrays(self._rows, keys))
        self._deletes = self._column(OP) == Op.DELETE.value

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def _column(self, name: str) -> npt.NDArray[np.int64]:
        column: npt.NDArray[np.int64] = self._rows[name].to_numpy()
        return column

    def kept(self) -> pa.Table:
        """What the base holds from now on: the last row of each key, if it is no DELETE."""
        is_last = np.append(self._is_first[1:], True)
        return self._rows.filter(pa.array(is_last & ~self._deletes))

    def illegal(self) -> dict[Code, Illegal]:
        """Of each way to be illegal how many changes there are, and the lowest place among them."""
        charges, partitions, offsets = self._charges, self._column(PARTITION), self._column(OFFSET)
        found = {}
        for number, code in enumerate(_ILLEGAL):
            rows = np.flatnonzero(charges == number)
            if len(rows):
                lowest = rows[np.lexsort((offsets[rows], partitions[rows]))[0]]
                found[code] = Illegal(len(rows), (int(partitions[lowest]), int(offsets[lowest])))
        return found

    @cached_property
    def _charges(self) -> npt.NDArray[np.int8]:
        """What each change is charged with, a number of `_ILLEGAL`."""
        partitions, from_log = self._column(PARTITION), self._column(OFFSET) >= 0
        inserts = self._column(OP) == Op.INSERT.value
        follows = ~self._is_first
        is_there = follows & ~_before(self._deletes)
        moved = follows & _before(from_log) & (_before(partitions) != partitions)
        ways = [moved, inserts & is_there, ~inserts & ~is_there]
        charges = np.select([from_log & way for way in ways], range(len(ways)), _LEGAL).astype(np.int8)
        suspects = np.flatnonzero((charges == _LEGAL) & from_log & ~inserts)
        charges[suspects[self._differs(suspects)]] = _ILLEGAL.index(Code.OLD_ROW_MISMATCH)
        return charges

    def _differs(self, changes: npt.NDArray[np.int64]) -> Mask:
        """Where `before` is not the row before, which is the one of the same key."""
        stored = self._rows.select(self._table.column_names).take(pa.array(changes - 1))
        told = self._rows[BEFORE_HASH].take(pa.array(changes)).to_numpy()
        differs: Mask = row_hashes(arrays(stored, stored.column_names), self._table.columns) != told
        return differs


def _before(values: _Column) -> _Column:
    """What is one row above; whatever for the first row."""
    return np.roll(values, 1)


def _write(part: FoldPart, rows: pa.Table) -> Iterator[DataFile]:
    """A file for each vnode, or several in key order where it is large."""
    vnodes = rows[VNODE].to_numpy()
    values = rows.select(part.table.column_names)
    for vnode in part.vnodes:
        start, end = np.searchsorted(vnodes, [vnode, vnode + 1]).tolist()
        for first in range(start, end, ROWS_PER_FILE):
            chunk = values.slice(first, min(ROWS_PER_FILE, end - first))
            file = part.storage.write_parquet(
                BASE_PATH, chunk, stem=f"{vnode:05d}", row_group_rows=ROWS_PER_GROUP
            )
            yield replace(file, partition={VNODE: str(vnode)})
