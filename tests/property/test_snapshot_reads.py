"""Slices and their ends against a slow model: a dictionary of the table as of the pinned version."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.position import Key, order_key
from schemas.records import Op, Row
from schemas.table import TableSchema
from state import replica
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.replica import BASE_PATH, LOG_PATH, BaseFile, ReplicaFiles, write_log_file
from state.storage import DataFile, Storage
from state.values.plan import Slice
from streaming.core.planning import Amount
from streaming.scan import snapshot
from streaming.scan.cutting import SliceCutter
from streaming.scan.snapshot import FileOrder, SnapshotReader
from tests.kit.tables import table
from tests.kit.values import examples

EXAMPLES = examples(60)
COMPACTED = 100
TABLE: TableSchema = table({"v": "string", "b": "boolean", "k": "int", "n": "int"}, key=["k", "b", "v"])
KEYS = st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from(["", "\uffff", "\U0001f600"]))


@dataclass(frozen=True)
class LogRow:
    vnode: int
    epoch: int
    key: Key
    op: Op
    n: int


@dataclass(frozen=True)
class Pinned:
    """Base keys by vnode with rows a file, and the log in the order of its offsets, cut into files."""

    base: dict[int, list[Key]]
    rows_per_file: int
    log: list[LogRow]
    log_files: int

    def rows(self, vnode: int) -> dict[Key, int]:
        """Column `n` by key: the table as of the last log row."""
        state = dict.fromkeys(self.base[vnode], -1)
        for row in self.log:
            if row.vnode == vnode and row.epoch > COMPACTED:
                state.pop(row.key, None)
                if row.op is not Op.DELETE:
                    state[row.key] = row.n
        return state

    def alive_in_log(self, vnode: int) -> set[Key]:
        newest = {row.key: row.op for row in self.log if row.vnode == vnode and row.epoch > COMPACTED}
        return {key for key, op in newest.items() if op is not Op.DELETE}


@st.composite
def pinned(draw: st.DrawFn) -> Pinned:
    epochs = sorted(draw(st.lists(st.integers(COMPACTED - 1, COMPACTED + 3), max_size=12)))
    rows = [
        LogRow(draw(st.integers(0, 1)), epoch, draw(KEYS), draw(st.sampled_from(Op)), n)
        for n, epoch in enumerate(epochs)
    ]
    base = {vnode: draw(st.lists(KEYS, max_size=12, unique=True)) for vnode in (0, 1)}
    return Pinned(base, draw(st.integers(1, 5)), rows, draw(st.integers(1, 3)))


def _row(key: Key, n: int) -> dict[str, Any]:
    return dict(zip(TABLE.primary_key, key, strict=True)) | {"n": n}


def written(storage: Storage, version: Pinned) -> ReplicaFiles:
    base: dict[int, tuple[BaseFile, ...]] = {}
    for vnode, keys in version.base.items():
        ordered = sorted(keys, key=order_key)
        chunks = [
            ordered[i : i + version.rows_per_file] for i in range(0, len(ordered), version.rows_per_file)
        ]
        # Delta lists the files of a vnode in no order
        base[vnode] = tuple(_base_file(storage, vnode, chunk) for chunk in reversed(chunks))
    logged = [
        {VNODE: row.vnode, EPOCH: row.epoch, PARTITION: 0, OFFSET: offset, OP: row.op} | _row(row.key, row.n)
        for offset, row in enumerate(version.log)
    ]
    parts = [logged[i :: version.log_files] for i in range(version.log_files)]
    return ReplicaFiles(COMPACTED, base, tuple(_log_file(storage, part) for part in parts if part))


def _base_file(storage: Storage, vnode: int, keys: list[Key]) -> BaseFile:
    schema = pa.schema([(column.name, column.type.arrow) for column in TABLE.columns])
    rows = pa.Table.from_pylist([_row(key, -1) for key in keys], schema=schema)
    file = storage.write_parquet(BASE_PATH, rows, stem=f"base-{rows.nbytes}b", row_group_rows=2)
    return BaseFile(file.path, vnode, file.rows, file.size)


def _log_file(storage: Storage, rows: list[dict[str, Any]]) -> DataFile:
    data = pa.Table.from_pylist(rows, schema=log_schema(TABLE))
    with patch.object(replica, "ROWS_PER_GROUP", 2):
        return write_log_file(storage, data, "log")


def in_range(key: Key, after: Key | None, upto: Key | None) -> bool:
    above = after is None or order_key(key) > order_key(after)
    return above and (upto is None or order_key(key) <= order_key(upto))


def budget_of(count: int) -> Amount:
    """A budget of rows, whatever they weigh."""
    return Amount(count, 1 << 40)


def open_reader(folder: str, version: Pinned) -> SnapshotReader:
    storage = Storage(folder)
    for path in (BASE_PATH, LOG_PATH):
        Path(storage.path(path)).mkdir(parents=True)
    return SnapshotReader(storage, TABLE, written(storage, version))


def with_orders(reader: SnapshotReader) -> SnapshotReader:
    orders = {
        vnode: FileOrder.from_files(base, reader.base_keys)
        for vnode, base in reader.files.base.items()
        if base
    }
    return replace(reader, orders=orders)


@settings(max_examples=EXAMPLES)
@given(
    version=pinned(),
    vnode=st.integers(0, 1),
    bounds=st.tuples(st.none() | KEYS, st.none() | KEYS),
    held_bytes=st.sampled_from([0, 1 << 20]),
    order_known=st.booleans(),
)
def test_a_slice_holds_each_row_of_its_range_once_as_of_the_pinned_version(
    version: Pinned, vnode: int, bounds: tuple[Key | None, Key | None], held_bytes: int, order_known: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.object(snapshot, "HELD_BYTES", held_bytes):
        reader = open_reader(folder, version)
        if order_known:
            reader = with_orders(reader)
        names = ["n", *TABLE.primary_key]
        overlay = reader.overlay(frozenset({0, 1}), names)
        found = [
            tuple(row[name] for name in names)
            for rows in reader.read(Slice(vnode, *bounds), names, overlay)
            for row in rows.to_pylist()
        ]
    expected: list[Row] = [(n, *key) for key, n in version.rows(vnode).items() if in_range(key, *bounds)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@settings(max_examples=2 * EXAMPLES)
@given(
    version=pinned(),
    vnode=st.integers(0, 1),
    after=st.none() | KEYS,
    limit=st.integers(1, 8),
    exact_below=st.sampled_from([0, SliceCutter.exact_below]),
    little=st.sampled_from([0.0, 0.5]),
)
def test_a_slice_ends_where_its_rows_are_counted_and_a_large_one_takes_a_little_rest_along(
    version: Pinned, vnode: int, after: Key | None, limit: int, exact_below: int, little: float
) -> None:
    """The log's rows count for a small slice, and for others where the base has none."""
    with tempfile.TemporaryDirectory() as folder:
        cutter = SliceCutter(open_reader(folder, version))
        cutter.exact_below, cutter.little = exact_below, little
        cut = cutter.cut(vnode, after, budget_of(limit))
    base, alive = version.base[vnode], version.alive_in_log(vnode)
    counted = {*base, *alive} if exact_below else base or alive
    keys = sorted((key for key in counted if in_range(key, after, None)), key=order_key)
    if len(keys) <= limit * (1 + little if base and not exact_below else 1):
        assert (cut.upto, cut.rows) == (None, len(keys))
    else:
        assert (cut.upto, cut.rows) == (keys[limit - 1], limit)


@settings(max_examples=EXAMPLES)
@given(
    version=pinned(),
    vnode=st.integers(0, 1),
    after=st.none() | KEYS,
    size=st.integers(1, 300),
    exact_below=st.sampled_from([0, 1_000]),
)
def test_a_slice_has_one_row_at_least_and_else_no_more_bytes_than_its_limit(
    version: Pinned, vnode: int, after: Key | None, size: int, exact_below: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cutter = SliceCutter(open_reader(folder, version))
        cutter.exact_below, cutter.little = exact_below, 0
        cut = cutter.cut(vnode, after, Amount(100, size))
    counted = {*version.base[vnode], *version.alive_in_log(vnode)}
    behind = [key for key in counted if in_range(key, after, None)]
    if cut.upto is None:
        assert cut.size <= size or cut.rows <= 1
    else:
        assert cut.rows >= 1
        assert cut.rows == 1 or cut.size <= size
        assert cut.upto in behind
        assert any(in_range(key, cut.upto, None) for key in behind)


@settings(max_examples=EXAMPLES)
@given(
    version=pinned(),
    limit=st.integers(1, 5),
    exact_below=st.sampled_from([0, 1_000]),
)
def test_keys_are_read_only_of_files_in_which_a_slice_begins_or_ends(
    version: Pinned, limit: int, exact_below: int
) -> None:
    """However many files a vnode has: what a cut costs must not grow with the table."""
    with tempfile.TemporaryDirectory() as folder:
        reader = open_reader(folder, version)
        cutter = SliceCutter(reader, kept_bytes=0)
        cutter.exact_below = exact_below
        cutter.cut(0, (0, False, ""), budget_of(1))  # for the ends of files, which are looked for once
        for after in [None, *version.base[0]]:
            with patch.object(
                SnapshotReader, "base_keys", autospec=True, side_effect=SnapshotReader.base_keys
            ) as read:
                cutter.cut(0, after, budget_of(limit))
            most = 2 if exact_below == 0 else 2 + limit // version.rows_per_file
            assert read.call_count <= most


@settings(max_examples=EXAMPLES)
@given(version=pinned(), bounds=st.tuples(st.none() | KEYS, st.none() | KEYS))
def test_files_out_of_a_range_are_not_opened(version: Pinned, bounds: tuple[Key | None, Key | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reader = with_orders(open_reader(folder, version))
        opened = reader.orders[0].of_range(*bounds) if version.base[0] else ()
    inside = [key for key in version.base[0] if in_range(key, *bounds)]
    assert sum(file.rows for file in opened) <= len(inside) + 2 * version.rows_per_file
