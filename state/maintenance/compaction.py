"""The compaction: new base files for the vnodes that changed, so that the base holds everything up to a barrier.

One part is a run of vnodes, compacted on its own and anywhere: base rows and log rows of a key stand together, in the
order of their epochs and offsets, base first. The last one stays if it is no DELETE. On the way the changelog's
legality is checked, here and nowhere else: INSERT only of an absent key, UPDATE and DELETE only of a present one,
`before` equal to the stored row, all changes of a key from one partition, where these have a place. Illegal changes are
counted and reported, and the compaction goes on: the outputs got these changes long ago, the last change of a key
decides in any case, and a service that stopped here would find the same log at its next start.

Files are written here and committed by `Replica.commit_compaction`; those of an uncommitted compaction are left-overs.
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

from schemas.avro.chunks import chunks
from schemas.errors import Code
from schemas.position import Key, order_key
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, EPOCH, LOG_OWN, NO_PLACE, OFFSET, OP, PARTITION, VNODE
from state.maintenance.compaction_rows import BYTES_PER_PART, PartRows, last_key, rows_of
from state.maintenance.compaction_rows import CompactionPart as CompactionPart  # what maintenance hands on
from state.replica import BASE_PATH, BaseFile, ReplicaFiles, raw_bytes, write_replica_file
from state.storage import DataFile, Storage
from state.values.arrays import arrays, changes_of_key, sort_order
from state.vnode import row_hashes

ROWS_PER_FILE = 100_000
"""Rows of a base file: small enough that a slice rarely reads much more than it takes."""
BYTES_PER_FILE = 32 << 20
"""Arrow bytes of a base file: a reader loads it whole."""
ROWS_PER_PART = 100_000
"""Rows that a part should read: 0.2 s of a core, for which a batch may have to wait."""
_ILLEGAL = (
    Code.KEY_IN_TWO_PARTITIONS,
    Code.INSERT_EXISTING_KEY,
    Code.DELETE_MISSING_KEY,
    Code.OLD_ROW_MISMATCH,
)
"""The ways in which a change of the log can be illegal; the first that applies counts."""
_LEGAL = -1

Mask = npt.NDArray[np.bool_]
_Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Illegal:
    """Changes that contradict the table in one way; `first` is the lowest of them: partition, offset."""

    count: int
    first: tuple[int, int]

    def __or__(self, other: Illegal) -> Illegal:
        return Illegal(self.count + other.count, min(self.first, other.first))


@dataclass(frozen=True)
class CompactionResult:
    """The result of one or several parts: files added, files that they replace, vnodes with changes, rows read."""

    added: Sequence[DataFile] = ()
    removed: Sequence[BaseFile] = ()
    changed: frozenset[int] = frozenset()
    rows_read: int = 0
    illegal: Mapping[Code, Illegal] = field(default_factory=dict)

    @property
    def vnodes(self) -> int:
        return len(self.changed)

    def __or__(self, other: CompactionResult) -> CompactionResult:
        illegal = dict(self.illegal)
        for code, found in other.illegal.items():
            illegal[code] = illegal[code] | found if code in illegal else found
        return CompactionResult(
            [*self.added, *other.added],
            [*self.removed, *other.removed],
            self.changed | other.changed,
            self.rows_read + other.rows_read,
            illegal,
        )


def parts_of(storage: Storage, table: TableSchema, files: ReplicaFiles) -> list[CompactionPart]:
    """All vnodes, in parts of about `ROWS_PER_PART` rows and `BYTES_PER_PART`, in order.

    A vnode of more than twice these bytes is divided between base files, whose last keys are read for it.
    Raises: StateError when one can't be read.
    """
    count = table.vnode_count
    stored, of_log = files.rows_by_vnode(count) if files.base else {}, -(-files.log_rows // count)
    log_bytes = files.log_bytes // count
    parts: list[CompactionPart] = []
    first = rows = size = 0
    for vnode in range(count):
        own = log_bytes + sum(map(raw_bytes, files.base.get(vnode, ())))
        rows, size = rows + stored.get(vnode, 0) + of_log, size + own
        if rows >= ROWS_PER_PART or size >= BYTES_PER_PART or vnode == count - 1:
            vnodes = range(first, vnode + 1)
            part = CompactionPart(storage, table, vnodes, files.of_vnodes(frozenset(vnodes)))
            parts += _divided(part) if own > 2 * BYTES_PER_PART and len(vnodes) == 1 else [part]
            first, rows, size = vnode + 1, 0, 0
    return parts


def _divided(part: CompactionPart) -> list[CompactionPart]:
    """A part of one vnode, cut between its base files."""
    (vnode,) = part.vnodes
    ends = sorted(
        ((last_key(part.storage, part.table, file), file) for file in part.files.base.get(vnode, ())),
        key=lambda end: order_key(end[0]),
    )
    parts: list[CompactionPart] = []
    held: list[BaseFile] = []
    after: Key | None = None
    for number, (upto, file) in enumerate(ends, start=1):
        held.append(file)
        if number == len(ends) or sum(map(raw_bytes, held)) >= BYTES_PER_PART:
            files = replace(part.files, base={vnode: tuple(held)})
            parts.append(replace(part, files=files, after=after, upto=None if number == len(ends) else upto))
            held, after = [], upto
    return parts or [part]


def compact_part(part: CompactionPart) -> CompactionResult:
    """Compact some vnodes. Raises: StateError when a file can't be read; OSError when none can be written."""
    rows = rows_of(part)
    changed = pc.unique(rows.rows[VNODE]).to_pylist()
    if not changed:
        return CompactionResult()
    replaced = [file for vnode in changed for file in part.files.base.get(vnode, ())]
    rows.add_base(replaced)
    history = _KeyHistory(part.table, rows)
    return CompactionResult(
        list(_write(part, history)), replaced, frozenset(changed), len(history), history.illegal()
    )


class _KeyHistory:
    """n rows of base and log in the order of vnode, key, epoch and offset."""

    def __init__(self, table: TableSchema, source: PartRows) -> None:
        keys = [VNODE, *table.primary_key]
        order = sort_order(arrays(source.rows, [*keys, EPOCH, OFFSET]))
        self._table, self._source = table, source
        self._order = order.to_numpy().astype(np.int64)
        self._rows = source.rows.select([*LOG_OWN, *table.primary_key]).take(order).combine_chunks()
        self._is_first = changes_of_key(arrays(self._rows, keys))
        self._deletes = self._column(OP) == Op.DELETE.value

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def _column(self, name: str) -> npt.NDArray[np.int64]:
        column: npt.NDArray[np.int64] = self._rows[name].to_numpy()
        return column

    def kept(self) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        """The new content of the base: the last row of each key, unless it is a DELETE.

        In order, in pieces: their vnodes, and the table's columns.
        """
        is_last = np.append(self._is_first[1:], True)
        kept = np.flatnonzero(is_last & ~self._deletes)
        vnodes = self._column(VNODE)[kept]
        for values in self._source.values(self._order[kept]):
            yield vnodes[: values.num_rows], values
            vnodes = vnodes[values.num_rows :]

    def illegal(self) -> dict[Code, Illegal]:
        """The count and the lowest location of illegal changes, by way."""
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
        """For each change an index of `_ILLEGAL`, or `_LEGAL`."""
        partitions, from_log = self._column(PARTITION), self._column(OFFSET) >= 0
        inserts = self._column(OP) == Op.INSERT.value
        follows = ~self._is_first
        is_there = follows & ~_before(self._deletes)
        places = partitions != NO_PLACE
        moved = follows & places & _before(places) & (_before(partitions) != partitions)
        ways = [moved, inserts & is_there, ~inserts & ~is_there]
        charges = np.select([from_log & way for way in ways], range(len(ways)), _LEGAL).astype(np.int8)
        hashed = self._column(EPOCH) > self._table.hashed_after
        suspects = np.flatnonzero((charges == _LEGAL) & from_log & ~inserts & hashed)
        charges[suspects[self._differs(suspects)]] = _ILLEGAL.index(Code.OLD_ROW_MISMATCH)
        return charges

    def _differs(self, changes: npt.NDArray[np.int64]) -> Mask:
        """True where `before` of a change is not the row before it, which has the same key."""
        columns = self._table.hashed_columns
        names = [column.name for column in columns]
        stored = [
            row_hashes(arrays(values, names), columns)
            for values in self._source.values(self._order[changes - 1])
        ]
        declared = self._rows[BEFORE_HASH].take(pa.array(changes)).to_numpy()
        differs: Mask = np.concatenate(stored) != declared if stored else np.zeros(0, np.bool_)
        return differs


def _before(values: _Column) -> _Column:
    """The value one row above; any value for the first row."""
    return np.roll(values, 1)


def _write(part: CompactionPart, history: _KeyHistory) -> Iterator[DataFile]:
    """A file for each vnode, or several in key order where it is large."""
    for vnodes, values in history.kept():
        for vnode in np.unique(vnodes).tolist():
            start, end = np.searchsorted(vnodes, [vnode, vnode + 1]).tolist()
            for chunk in chunks(values.slice(start, end - start), ROWS_PER_FILE, BYTES_PER_FILE):
                file = write_replica_file(part.storage, BASE_PATH, chunk, f"{vnode:05d}")
                yield replace(file, partition={VNODE: str(vnode)})
