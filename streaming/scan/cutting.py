"""Ends of slices: keys are counted in base files, and in the log where the base has nothing.

Files are disjoint in key: all but those in which a slice begins and ends count as whole, and their keys are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from schemas.position import Key
from schemas.records import Op
from state.columns import OP
from state.replica import BaseFile, ReplicaFiles, raw_bytes
from state.values.arrays import arrays, changes_of_key, key_at, sort_order, within
from streaming.core.planning import Amount, Cut
from streaming.scan.snapshot import FileOrder, Overlay, SnapshotReader

_Base = tuple[BaseFile, ...]
"""The files of a vnode, in any order."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows that follow one another in key order, and the mean bytes of one; `key_at` may have to read a file."""

    rows: int
    row_bytes: float
    key_at: Callable[[int], Key]

    @property
    def amount(self) -> Amount:
        return Amount(self.rows, int(self.rows * self.row_bytes))


class SliceCutter:
    """Finds the ends of slices. One for all pinned versions: `use` goes on to the next.

    Where there is a base, the log's rows in a range are not counted, for they are a bounded share of it; their bytes
    are, as if spread evenly. Budgets below `exact_below` rows count the log's rows as well, so that a tight rate limit
    is kept to the row. Larger budgets are exceeded by up to the share `little` where that finishes the vnode: the rest
    would need a batch of its own.
    """

    exact_below = 1_000
    little = 0.1
    _small_log = 200_000

    def __init__(self, reader: SnapshotReader, kept_bytes: int = 32 << 20) -> None:
        self._reader = reader
        self._keys = _KeyCache(kept_bytes)
        self._orders: dict[int, tuple[_Base, FileOrder]] = {}
        self._small_overlay: Overlay | None = None

    def use(self, reader: SnapshotReader) -> None:
        """Go on with another pinned version; the caches of files that are in both stay."""
        self._reader, self._small_overlay = reader, None

    def orders(self, files: ReplicaFiles) -> dict[int, FileOrder]:
        """The cached file orders of the vnodes of `files`."""
        known = self._orders
        return {
            vnode: known[vnode][1]
            for vnode, base in files.base.items()
            if vnode in known and known[vnode][0] == base
        }

    def cut(self, vnode: int, after: Key | None, limit: Amount) -> Cut:
        """The end of a slice of about `limit`, at least one row, behind `after`."""
        base = self._reader.files.base.get(vnode, ())
        if not base or limit.rows < self.exact_below:
            return self._cut_exactly(vnode, after, base, limit)
        more = 1 + self.little
        most = Amount(int(limit.rows * more), int(limit.size * more))
        if after is None and (whole := _total(map(self._run, base))).fits(most):
            return Cut(None, whole.rows, whole.size)
        runs = self._runs(vnode, base, after)
        if (rest := _total(runs)).fits(most):
            return Cut(None, rest.rows, rest.size)
        return _cut_among(runs, limit)

    def _row_bytes(self, file: BaseFile) -> float:
        """Mean bytes per row of a base file, with its share of the log's bytes."""
        files = self._reader.files
        return raw_bytes(file) / max(file.rows, 1) + files.log_bytes / max(files.base_rows, 1)

    def _run(self, file: BaseFile) -> _Run:
        return _Run(file.rows, self._row_bytes(file), partial(self._key_at, file))

    def _runs(self, vnode: int, base: _Base, after: Key | None) -> list[_Run]:
        """The rows of base files behind `after`, in key order; keys of the first file alone are read."""
        order = self._order(vnode, base)
        files = order.files[order.begin(after) :]
        runs = [self._run(file) for file in files]
        if after is not None and files:
            keys = _filtered(self._keys_of(files[0]), after)
            runs[0] = _Run(len(keys[0]), runs[0].row_bytes, partial(key_at, keys))
        return runs

    def _key_at(self, file: BaseFile, index: int) -> Key:
        return key_at(self._keys_of(file), index)

    def _keys_of(self, file: BaseFile) -> list[pa.Array]:
        known = self._keys.get(file.path)
        if known is None:
            known = self._reader.base_keys(file)
            self._keys.put(file.path, known)
        return known

    def _order(self, vnode: int, base: _Base) -> FileOrder:
        known = self._orders.get(vnode)
        if known is None or known[0] != base:
            known = base, FileOrder.from_files(base, self._keys_of)
            self._orders[vnode] = known
        return known[1]

    def _cut_exactly(self, vnode: int, after: Key | None, base: _Base, limit: Amount) -> Cut:
        files = self._reader.files
        row_bytes = (files.base_bytes + files.log_bytes) / max(files.rows, 1)
        if after is None and not base:
            rows = self._overlay(vnode).rows(vnode)
            if (whole := Amount(rows, int(rows * row_bytes))).fits(limit):
                return Cut(None, whole.rows, whole.size)
        keys = self._next_keys(vnode, after, base, limit.rows + 1)
        return _cut_among([_Run(len(keys[0]), row_bytes, partial(key_at, keys))], limit)

    def _next_keys(self, vnode: int, after: Key | None, base: _Base, count: int) -> list[pa.Array]:
        """The keys behind `after`, of base and log, each once: all of them, or at least the first `count`."""
        names = self._reader.table.primary_key
        overlay = self._overlay(vnode).newest_of(vnode)
        alive = arrays(overlay.filter(pc.not_equal(overlay[OP], Op.DELETE.value)), names)
        stored, upto = self._next_stored(vnode, base, after, count) if base else ([], None)
        sources = [*stored, _filtered(alive, after, upto)]
        merged = [pa.concat_arrays([keys[i] for keys in sources]) for i in range(len(names))]
        order = sort_order(merged)
        merged = [column.take(order) for column in merged]
        distinct = pa.array(changes_of_key(merged))
        return [column.filter(distinct) for column in merged]

    def _next_stored(
        self, vnode: int, base: _Base, after: Key | None, count: int
    ) -> tuple[list[list[pa.Array]], Key | None]:
        """Keys of base files behind `after`, `count` at least, and the last one; None where these are all."""
        order = self._order(vnode, base)
        found: list[list[pa.Array]] = []
        for number in range(order.begin(after), len(order.files)):
            found.append(_filtered(self._keys_of(order.files[number]), after))
            count -= len(found[-1][0])
            if count <= 0 and number + 1 < len(order.files):
                return found, key_at(order.last_keys, number)
        return found, None

    def _overlay(self, vnode: int) -> Overlay:
        """The log's newest rows, of this vnode at least; a small log is read once, for all vnodes."""
        names, files = self._reader.table.primary_key, self._reader.files
        if files.log_rows > self._small_log:
            return self._reader.overlay(frozenset({vnode}), names)
        if self._small_overlay is None:
            every = frozenset(range(self._reader.table.vnode_count))
            self._small_overlay = self._reader.overlay(every, names)
        return self._small_overlay


class _KeyCache:
    """A cache of keys by file, which drops the least recently used, so that memory does not grow with the table."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._keys: dict[str, list[pa.Array]] = {}

    def get(self, path: str) -> list[pa.Array] | None:
        keys = self._keys.pop(path, None)
        if keys is not None:
            self._keys[path] = keys
        return keys

    def put(self, path: str, keys: list[pa.Array]) -> None:
        """Add keys. The newest stay, whatever their size."""
        self._bytes += _size(keys)
        while self._keys and self._bytes > self._most_bytes:
            self._bytes -= _size(self._keys.pop(next(iter(self._keys))))
        self._keys[path] = keys


def _size(keys: list[pa.Array]) -> int:
    return sum(column.nbytes for column in keys)


def _filtered(keys: list[pa.Array], after: Key | None, upto: Key | None = None) -> list[pa.Array]:
    if (after is None and upto is None) or len(keys[0]) == 0:
        return keys
    mask = pa.array(within(keys, after, upto))
    return [column.filter(mask) for column in keys]


def _total(runs: Iterable[_Run]) -> Amount:
    return sum((run.amount for run in runs), Amount(0, 0))


def _cut_among(runs: Sequence[_Run], limit: Amount) -> Cut:
    """The cut among runs that follow one another; at least one row."""
    taken, before = Amount(0, 0), None
    for run in runs:
        left = limit - taken
        fits = min(left.rows, int(left.size / run.row_bytes)) if run.row_bytes > 0 else left.rows
        count = min(run.rows, max(fits, 0 if taken.rows else 1))
        taken += Amount(count, int(count * run.row_bytes))
        if count < run.rows:
            return Cut(_last_key(run, count, before), taken.rows, taken.size)
        before = run if run.rows else before
    return Cut(None, taken.rows, taken.size)


def _last_key(run: _Run, count: int, before: _Run | None) -> Key:
    """Of the first `count` rows of a run or, without any, of the run before."""
    if count:
        return run.key_at(count - 1)
    assert before is not None, "a cut has one row at least"
    return before.key_at(before.rows - 1)
