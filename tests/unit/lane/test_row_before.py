"""Changes without `before` become the legal changelog that they amount to, and the store keeps up with them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.formats.outputs.records import AvroRowEncoder
from schemas.records import Change, Op
from streaming.lane.before.normal import KeyOrder, Stored, Written, normalised, written
from streaming.lane.before.store import LocalStore, RowStore, decoded
from streaming.source.decoded import Changes
from tests.kit.columns import columns_of, upserts_of
from tests.kit.tables import table

TABLE = table()
Row = tuple[Any, ...]
Record = tuple[int, Row | None]
"""A key, and its row or None for a delete."""

records = st.lists(
    st.tuples(st.integers(0, 5), st.none() | st.tuples(st.integers(0, 3), st.none() | st.text(max_size=3))),
    max_size=25,
).map(lambda found: [(key, None if rest is None else (key, *rest)) for key, rest in found])
stored_rows = st.dictionaries(
    st.integers(0, 5), st.tuples(st.integers(0, 3), st.none() | st.text(max_size=3))
)


def columns(rows: list[Row | None]) -> tuple[pa.Array, ...]:
    return columns_of(TABLE.columns, rows)


def changes_of(found: list[Record]) -> Changes:
    return upserts_of(TABLE, found, [number // 4 for number in range(len(found))])


NOTHING = Written(pa.array([], pa.binary()), columns([]), pa.array([], pa.binary()))


def look(store: RowStore, epoch: int, keys: pa.Array) -> Stored:
    with store.at(epoch) as view:
        assert view is not None
        return decoded(view(keys), TABLE)


def encoded(changes: Changes) -> pa.Array:
    return changes.encoded_keys(AvroRowEncoder(TABLE.key_columns))


def model(found: list[Record], rows: dict[int, Row]) -> list[tuple[int, Change]]:
    """One by one, with the number of the record that each is."""
    changes = []
    for number, (key, after) in enumerate(found):
        before = rows.get(key)
        if after is not None:
            rows[key] = after
            changes.append((number, Change(Op.INSERT if before is None else Op.UPDATE, before, after)))
        elif before is not None:
            del rows[key]
            changes.append((number, Change(Op.DELETE, before, None)))
    return changes


def shown(changes: Changes) -> list[tuple[int, Change]]:
    halves = (
        list(zip(*(column.to_pylist() for column in half), strict=True))
        for half in (changes.before, changes.after)
    )
    return [
        (
            changes.rows["number"][index].as_py(),
            Change(Op(op), before if op != Op.INSERT else None, after if op != Op.DELETE else None),
        )
        for index, (op, before, after) in enumerate(zip(changes.ops, *halves, strict=True))
    ]


def in_memory(rows: dict[int, Row], order: KeyOrder, changes: Changes) -> Stored:
    keys = [None] * len(order.distinct)
    for number, key in zip(order.number, changes.keys[0].to_pylist(), strict=True):
        keys[number] = key
    found = [rows.get(key) for key in keys]  # type: ignore[call-overload]  # each was set
    return Stored(np.array([row is not None for row in found], dtype=np.bool_), columns(found))


@given(records, stored_rows)
def test_records_become_the_changes_that_they_amount_to(found: list[Record], stored: dict[int, Any]) -> None:
    rows = {key: (key, *rest) for key, rest in stored.items()}
    changes = changes_of(found)
    order = KeyOrder.of(encoded(changes))
    made = normalised(changes, order, in_memory(rows, order, changes))
    assert shown(made) == model(found, dict(rows))
    assert list(made.interval) == [number // 4 for number, _ in shown(made)]


@given(st.lists(records, max_size=6))
def test_a_store_that_takes_in_each_batch_is_the_table(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Record]]
) -> None:
    rows: dict[int, Row] = {}
    with closing(LocalStore(tmp_path_factory.mktemp("rows"), TABLE)) as store:
        before = 0
        store.write(NOTHING, after=None, epoch=before)
        for epoch, found in enumerate(batches, 1):
            changes = changes_of(found)
            order = KeyOrder.of(encoded(changes))
            made = normalised(changes, order, look(store, before, order.distinct))
            assert shown(made) == model(found, rows)
            assert store.write(written(changes, order), after=before, epoch=epoch)
            before = epoch
        assert len(store) == len(rows)


def test_a_store_is_written_once_from_where_it_is_and_kept_over_openings(tmp_path: Path) -> None:
    changes = changes_of([(1, (1, 2, "x"))])
    order = KeyOrder.of(encoded(changes))
    rows = written(changes, order)
    with closing(LocalStore(tmp_path / "rows", TABLE)) as store:
        assert store.epoch is None
        assert store.write(rows, after=None, epoch=5)
        assert not store.write(rows, after=None, epoch=6)
        assert not store.write(rows, after=4, epoch=6)
    with closing(LocalStore(tmp_path / "rows", TABLE)) as store:
        assert store.epoch == 5
        assert look(store, 5, order.distinct).present.tolist() == [True]
        with store.at(4) as view:
            assert view is None


def test_two_processes_at_once_each_see_a_whole_epoch(tmp_path: Path) -> None:
    changes = changes_of([(1, (1, 2, "x"))])
    order = KeyOrder.of(encoded(changes))
    with closing(LocalStore(tmp_path, TABLE)) as store:
        store.write(written(changes, order), after=None, epoch=1)
    # In the same process LMDB refuses a second environment of a folder.
    script = (
        "import sys; from pathlib import Path; from tests.unit.lane.test_row_before import *\n"
        "with closing(LocalStore(Path(sys.argv[1]), TABLE)) as store: print(store.epoch, len(store))"
    )
    with closing(LocalStore(tmp_path, TABLE)) as store:
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert store.epoch == 1
    assert done.stdout.split() == ["1", "1"]


def test_a_store_of_before_the_machine_was_started_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = changes_of([(1, (1, 2, "x"))])
    with closing(LocalStore(tmp_path / "rows", TABLE)) as store:
        store.write(written(changes, KeyOrder.of(encoded(changes))), after=None, epoch=1)
    (tmp_path / "boot_id").write_text("another")
    monkeypatch.setattr("streaming.lane.before.store._BOOT_ID", tmp_path / "boot_id")
    with closing(LocalStore(tmp_path / "rows", TABLE)) as store:
        assert (store.epoch, len(store)) == (None, 0)


@pytest.mark.parametrize("damage", [b"", b"not a database" * 1_000])
def test_a_file_that_is_no_store_is_replaced(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "data.mdb").write_bytes(damage)
    with closing(LocalStore(tmp_path, TABLE)) as store:
        assert store.epoch is None


def test_keys_that_are_too_long_are_kept_by_their_digests(tmp_path: Path) -> None:
    wide = table({"id": "string", "v": "string"})
    keys = pa.array([b"k" * 5_000 + str(number).encode() for number in range(3)], pa.binary())
    changes = upserts_of(wide, [(f"{number}", (f"{number}",) * 2) for number in range(3)])
    order = KeyOrder.of(keys)
    with closing(LocalStore(tmp_path, wide)) as store:
        store.write(written(changes, order), after=None, epoch=1)
        with store.at(1) as view:
            assert view is not None
            stored = decoded(view(order.distinct.take([2, 0])), wide)
        assert stored.columns[0].to_pylist() == ["2", "0"]


def test_rows_that_are_looked_at_stay_as_they_are_while_others_write(tmp_path: Path) -> None:
    found = [changes_of([(1, (1, number, "x"))]) for number in range(2)]
    orders = [KeyOrder.of(encoded(changes)) for changes in found]
    with closing(LocalStore(tmp_path, TABLE)) as store:
        store.write(written(found[0], orders[0]), after=None, epoch=1)
        with store.at(1) as view:
            assert view is not None
            store.write(written(found[1], orders[1]), after=1, epoch=2)
            store.clear()
            stored = decoded(view(orders[0].distinct), TABLE)
            assert stored.columns[1].to_pylist() == [0]


def test_a_store_whose_folder_is_deleted_goes_on_for_who_has_it_open(tmp_path: Path) -> None:
    changes = changes_of([(1, (1, 0, "a"))])
    rows = written(changes, KeyOrder.of(encoded(changes)))
    with closing(LocalStore(tmp_path / "rows", TABLE)) as store:
        shutil.rmtree(tmp_path / "rows")
        with store.alone():
            store.clear()
            store.fill(rows)
            store.write(NOTHING, after=None, epoch=7)
        with closing(LocalStore(tmp_path / "rows", TABLE)) as other, other.alone():
            assert (store.epoch, other.epoch, len(store), len(other)) == (7, None, 1, 0)
