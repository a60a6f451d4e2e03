"""A table copied into a replica, part by part, against the table itself; parts are done one after another here."""

from __future__ import annotations

import datetime as dt
import functools
import json
import operator
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import BackfillError, Code
from schemas.position import order_key
from schemas.records import Row
from schemas.table import TableSchema
from state import replica as state_replica
from state.columns import base_schema
from state.initial import copy as initial_copy
from state.initial import table as initial_table
from state.initial.copy import TableCopy, copy_part
from state.initial.start import CopyProgress, progress_of
from state.initial.table import SourceTable
from state.maintenance.compaction import CompactionResult, compact_part
from state.replica import BASE_PATH, Replica
from state.storage import Storage
from tests.kit.tables import table, vnode_of
from tests.kit.values import examples

EXAMPLES = examples(20)
EVERY_TYPE = {
    "k": "string",
    "d": "date",
    "b": "boolean",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "x": "double",
    "m": "decimal(20,2)",
    "r": "binary",
    "t": "timestamp",
}
TABLE = table(EVERY_TYPE, key=["l", "d", "k"], distribution_key=["k", "l"], vnode_count=5)
ROWS = st.tuples(
    st.sampled_from(["", "a", "é", "\U0001f600"]),
    st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    st.none() | st.booleans(),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.integers(-3, 3),
    st.none() | st.floats(width=32, allow_nan=False),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.decimals(-(10**15), 10**15, places=2),
    st.none() | st.binary(max_size=3),
    st.none() | st.datetimes(timezones=st.just(dt.UTC)),
)


def written(folder: Path, schema: TableSchema, files: list[list[Row]], **extra: Any) -> str:
    """A Delta table of these rows, a file and a version for each list; `extra` columns have one value."""
    arrow = pa.schema([(column.name, column.type.arrow) for column in schema.columns])
    uri = str(folder / "source")
    for rows in files or [[]]:
        columns = {name: [row[i] for row in rows] for i, name in enumerate(schema.column_names)}
        data = pa.table(columns, schema=arrow)
        for name, value in extra.items():
            data = data.append_column(name, pa.array([value] * len(rows), pa.string()))
        write_deltalake(uri, data, mode="append")
    return uri


def newest(uri: str) -> SourceTable:
    return SourceTable(uri, DeltaTable(uri).version())


def copied(copy: TableCopy, *, width: int = 2, most: int | None = None) -> bool:
    """Go on with a copy, for so many rounds at most; whether it is done."""
    rounds = 0
    while (parts := copy.to_copy(width)) and rounds != most:
        copy.commit_copied(list(reversed([copy_part(part) for part in parts])))
        rounds += 1
    if parts:
        return False
    while (to_sort := copy.to_sort(width)) and rounds != most:
        results = (compact_part(part) for part in reversed(to_sort))
        copy.commit_sorted(len(to_sort), functools.reduce(operator.or_, results, CompactionResult()))
        rounds += 1
    if to_sort:
        return False
    copy.commit_end()
    return True


def stored(replica: Replica) -> dict[int, list[Row]]:
    """The rows of the base by vnode, file by file in the order of their first keys."""
    schema = base_schema(replica.table).remove(0)
    found: dict[int, list[list[Row]]] = {}
    for vnode, files in replica.files(replica.pin()).base.items():
        for file in files:
            data = replica.storage.read_parquet(BASE_PATH, [file.path], schema)
            rows = list(zip(*(data[name].to_pylist() for name in replica.table.column_names), strict=True))
            found.setdefault(vnode, []).append(rows)
    key_of = replica.table.key_of
    return {
        vnode: [row for rows in sorted(files, key=lambda rows: order_key(key_of(rows[0]))) for row in rows]
        for vnode, files in found.items()
    }


def expected(schema: TableSchema, rows: list[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: order_key(schema.key_of(row))):
        found.setdefault(vnode_of(schema, schema.key_of(row)), []).append(row)
    return found


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    rows=st.lists(ROWS, max_size=25, unique_by=TABLE.key_of),
    files=st.integers(1, 4),
    part_rows=st.integers(1, 12),
    stops=st.lists(st.integers(0, 2), max_size=6),
)
def test_the_base_is_the_table_however_often_the_copy_is_interrupted(
    rows: list[Row], files: int, part_rows: int, stops: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("copy")
    uri = written(folder, TABLE, [rows[number::files] for number in range(files)], extra="left out")
    storage = Storage(str(folder / "state"), synced=False)
    done = False
    for most in [*stops, None]:
        copy = TableCopy(Replica(storage, TABLE), newest(uri), part_rows)
        if progress_of(copy._replica, None) is None:
            break
        done = copied(copy, most=most)
    assert done
    replica = Replica(storage, TABLE)
    assert progress_of(replica, None) is None
    assert stored(replica) == expected(TABLE, rows)
    assert (replica.compacted_epoch, replica.log_epoch, replica.files(replica.pin()).log) == (0, 0, ())
    assert replica.log.files() == []


def test_parts_that_were_remembered_are_not_copied_again(storage: Storage, tmp_path: Path) -> None:
    schema = table()
    uri = written(tmp_path, schema, [[(10 * file + n, n, "v") for n in range(10)] for file in range(5)])
    copy = TableCopy(Replica(storage, schema), newest(uri), 10)
    assert not copied(copy, width=2, most=1)
    assert copy.progress == CopyProgress(20, 0, 50)
    again = TableCopy(Replica(storage, schema), newest(uri), 10)
    assert [part.number for part in again.to_copy(9)] == [2, 3, 4]
    assert again.progress == CopyProgress(20, 0, 50)


def test_large_rows_and_large_vnodes_are_copied_in_pieces(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial_copy, "BYTES_PER_FILE", 10_000)
    monkeypatch.setattr(initial_table, "_BATCH_ROWS", 50)
    monkeypatch.setattr(state_replica, "ROWS_PER_GROUP", 7)
    schema = table()
    rows: list[Row] = [(n, n, "x" * 200) for n in random.Random(1).sample(range(1_000), 500)]
    uri = written(tmp_path, schema, [rows])
    replica = Replica(storage, schema)
    copy = TableCopy(replica, newest(uri), 10**6)
    assert not copied(copy, most=1)
    assert len(replica.log.files()) > 5
    assert copied(copy)
    assert stored(replica) == expected(schema, rows)


def refusal(copy: TableCopy) -> BackfillError:
    with pytest.raises(BackfillError) as caught:
        copied(copy)
    return caught.value


def test_rows_without_a_key_are_refused_and_counted(storage: Storage, tmp_path: Path) -> None:
    schema = table()
    uri = written(tmp_path, schema, [[(1, 1, "a")], [(None, 1, "a"), (2, 1, "b"), (None, 2, None)]])
    error = refusal(TableCopy(Replica(storage, schema), newest(uri), 1))
    assert (error.code, error.where) == (Code.INITIAL_KEY_NULL, f"{uri}@1")
    assert error.found == "2 rows with a null in the primary key"


DAY_10000 = pa.array([0, 2_932_897, None], pa.int32()).cast(pa.date32())
INFINITE = pa.array([0, -(2**63) + 1, 2**63 - 1], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
"""PostgreSQL's infinity as Spark has it."""
BEFORE_YEAR_1 = pa.array([-719_163, -719_162, 2_932_896], pa.int32()).cast(pa.date32())
NO_TEXT = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"\xff", b"b\xc3"], pa.binary()).buffers())


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("of_key", [True, False])
@pytest.mark.parametrize(
    ("values", "declared", "found"),
    [
        (DAY_10000, "date", "a date outside the years 1 to 9999 in column v, 1 of them"),
        (BEFORE_YEAR_1, "date", "a date outside the years 1 to 9999 in column v, 1 of them"),
        (INFINITE, "timestamp", "a timestamp outside the years 1 to 9999 in column v, 2 of them"),
    ],
)
def test_values_that_no_form_can_hold_are_refused_and_counted(
    storage: Storage,
    tmp_path: Path,
    values: pa.Array,
    declared: str,
    found: str,
    of_key: bool,
    statistics: bool,
) -> None:
    schema = table({"id": "bigint", "v": declared}, key=["id", "v"] if of_key else ["id"])
    uri, indexed = str(tmp_path / "source"), "32" if statistics else "1"
    rows = pa.table({"id": pa.array([1, 2, 3]), "v": values}).filter(values.is_valid())
    write_deltalake(uri, rows, configuration={"delta.dataSkippingNumIndexedCols": indexed})
    source = newest(uri)
    source.check(schema)
    replica = Replica(storage, schema)
    error = refusal(TableCopy(replica, source, 1))
    assert (error.code, error.where, error.found) == (Code.VALUE_OUT_OF_RANGE, f"{uri}@0", found)
    assert not replica.log.files()


def test_a_day_that_files_are_partitioned_by_is_refused_with_their_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "source")
    days = pa.array([0, 2_932_897, 2_932_897], pa.int32()).cast(pa.date32())
    write_deltalake(uri, pa.table({"id": pa.array([1, 2, 3]), "v": days}), partition_by=["v"])
    with pytest.raises(BackfillError) as caught:
        newest(uri).check(table({"id": "bigint", "v": "date"}))
    assert caught.value.code is Code.VALUE_OUT_OF_RANGE
    assert caught.value.found.endswith("in column v, 2 of them")


def test_text_that_is_not_utf8_and_numbers_that_are_too_long_are_counted() -> None:
    """Parquet has them, though Delta's writers do not make them."""
    too_long = pa.Array.from_buffers(
        pa.decimal128(2, 0), 3, pa.array([99, 100, -100], pa.decimal128(5, 0)).buffers()
    )
    schema = table({"id": "bigint", "n": "decimal(2,0)", "t": "string"})
    rows = pa.table({"id": pa.array([1, 2, 3]), "n": too_long, "t": NO_TEXT})
    assert initial_copy._invalid(rows, schema) == {
        (Code.VALUE_OUT_OF_RANGE, "n", "a number with more digits than decimal(2,0)"): 2,
        (Code.BAD_ENCODING, "t", "a text that is not UTF-8"): 2,
    }


def test_partitioned_tables_are_copied(storage: Storage, tmp_path: Path) -> None:
    schema = table({"id": "bigint", "d": "date", "t": "timestamp", "s": "string"})
    day, moment = dt.date(9999, 12, 31), dt.datetime(2020, 1, 2, tzinfo=dt.UTC)
    rows: list[Row] = [(1, day, moment, "a"), (2, dt.date(1, 1, 1), moment, ""), (3, None, None, None)]
    arrow = pa.schema([(column.name, column.type.arrow) for column in schema.columns])
    columns = {name: [row[i] for row in rows] for i, name in enumerate(schema.column_names)}
    uri = str(tmp_path / "source")
    write_deltalake(uri, pa.table(columns, schema=arrow), partition_by=["d", "s"])
    source, replica = newest(uri), Replica(storage, schema)
    source.check(schema)
    assert copied(TableCopy(replica, source, 1))
    kept = [(*row[:3], row[3] or None) for row in rows]  # Delta has no empty text there
    assert stored(replica) == expected(schema, kept)


def test_keys_that_several_rows_have_are_refused_and_counted(storage: Storage, tmp_path: Path) -> None:
    schema = table()
    uri = written(tmp_path, schema, [[(1, 1, "a"), (2, 2, "b")], [(1, 9, "c"), (3, 1, "d")], [(1, 1, "a")]])
    error = refusal(TableCopy(Replica(storage, schema), newest(uri), 1))
    assert (error.code, error.found) == (
        Code.INITIAL_KEY_DUPLICATE,
        "2 rows with the primary key of another one",
    )


def test_a_file_that_is_gone_is_named_and_what_was_copied_stays(storage: Storage, tmp_path: Path) -> None:
    schema = table()
    uri = written(tmp_path, schema, [[(1, 1, "a")], [(2, 2, "b")]])
    source = newest(uri)
    copy = TableCopy(Replica(storage, schema), source, 1)
    assert not copied(copy, width=1, most=1)
    for file in Path(uri).glob("*.parquet"):
        file.rename(file.with_suffix(".aside"))
    assert refusal(copy).code is Code.INITIAL_TABLE_UNREADABLE
    for file in Path(uri).glob("*.aside"):
        file.rename(file.with_suffix(".parquet"))
    replica = Replica(storage, schema)
    assert copied(TableCopy(replica, source, 1), width=1)
    assert stored(replica) == expected(schema, [(1, 1, "a"), (2, 2, "b")])


@pytest.mark.parametrize("way", ["no folder", "no table", "no version"])
def test_a_table_that_is_not_there_is_refused(way: str, tmp_path: Path) -> None:
    uri = written(tmp_path, table(), [[(1, 1, "a")]])
    (tmp_path / "empty").mkdir()
    asked = {"no folder": (uri + "x", 0), "no table": (str(tmp_path / "empty"), 0), "no version": (uri, 7)}
    with pytest.raises(BackfillError) as caught:
        SourceTable(*asked[way])
    missing = Code.INITIAL_VERSION_MISSING if way == "no version" else Code.INITIAL_TABLE_MISSING
    assert caught.value.code is missing
    assert not (tmp_path / "sourcex").exists()


def test_columns_that_are_missing_or_of_another_type_are_all_named(tmp_path: Path) -> None:
    uri = written(tmp_path, table(), [[(1, 1, "a")]], more="x")
    newest(uri).check(table())
    other = table({"id": "int", "n": "int", "weight": "string", "v": "binary"})
    with pytest.raises(BackfillError) as caught:
        newest(uri).check(other)
    assert caught.value.code is Code.INITIAL_TABLE_MISFIT
    assert caught.value.found == (
        "column 'id' of type long for int; no column 'weight'; column 'v' of type string for binary"
    )


def test_every_type_has_the_name_that_delta_gives_it(tmp_path: Path) -> None:
    newest(written(tmp_path, TABLE, [])).check(TABLE)


def test_a_table_that_does_not_say_how_many_rows_it_has_is_copied(storage: Storage, tmp_path: Path) -> None:
    schema = table()
    uri = written(tmp_path, schema, [[(n, n, "a")] for n in range(3)])
    for commit in Path(uri, "_delta_log").glob("*.json"):
        lines = commit.read_text().splitlines()
        commit.write_text("\n".join(without_statistics(line) for line in lines) + "\n")
    source = newest(uri)
    assert source.rows is None
    assert source.size > 0
    replica = Replica(storage, schema)
    assert copied(TableCopy(replica, source, 1))
    assert stored(replica) == expected(schema, [(n, n, "a") for n in range(3)])


def without_statistics(line: str) -> str:
    action = json.loads(line)
    if "add" in action:
        action["add"].pop("stats")
    return json.dumps(action)
