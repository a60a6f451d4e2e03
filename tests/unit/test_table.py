"""Tables, their columns' types, and the changes of their rows."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from schemas.errors import Code, ConfigError
from schemas.records import Change, Op
from schemas.table import DEFAULT_VNODE_COUNT, Column, declare
from schemas.types import ColumnType, TypeName
from tests.kit.values import TYPES

ORDERS: dict[str, Any] = {
    "name": "orders",
    "columns": {"note": "string", "region": "string", "id": "bigint", "amount": "decimal(18,2)"},
    "primary_key": ["id", "region"],
    "distribution_key": ["region"],
    "vnode_count": 16,
}


def faults_of(declaration: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        declare(declaration, where="orders.yaml")
    assert caught.value.code is Code.TABLE_INVALID
    assert caught.value.where == "orders.yaml"
    return caught.value.found


def test_rows_are_in_declared_order_and_keys_in_key_order() -> None:
    table = declare(ORDERS)
    assert table.column_names == ("note", "region", "id", "amount")
    assert [column.name for column in table.key_columns] == ["id", "region"]
    assert table.key_of(("n", "EU", 7, None)) == (7, "EU")
    assert [column.name for column in table.select(["amount", "note"])] == ["amount", "note"]


def test_exactly_the_primary_key_is_not_nullable() -> None:
    table = declare(ORDERS)
    assert [column.name for column in table.columns if not column.nullable] == ["region", "id"]
    assert table.by_name["note"] == Column("note", ColumnType(TypeName.STRING), nullable=True)


def test_what_is_left_out_has_a_default() -> None:
    table = declare({name: ORDERS[name] for name in ("name", "columns", "primary_key")})
    assert table.distribution_key == ("id", "region")
    assert table.vnode_count == DEFAULT_VNODE_COUNT


def test_a_table_reads_back_from_its_own_declaration() -> None:
    table = declare({name: ORDERS[name] for name in ("name", "columns", "primary_key")})
    assert declare(table.to_dict()) == table
    assert list(table.to_dict()["columns"]) == list(ORDERS["columns"])


def test_every_fault_is_named_at_once() -> None:
    found = faults_of(
        {
            "name": "my orders",
            "colums": {},
            "columns": {"id": "bigint", "price": "money", "9lives": "int", "_bf_op": "int", "w": "double"},
            "primary_key": ["idd", "w", "w"],
            "distribution_key": ["price"],
            "vnode_count": 1,
        }
    )
    for fault in (
        "unknown key 'colums' (did you mean 'columns'?)",
        "name 'my orders'",
        "column price: 'money' is not one of",
        "column name '9lives'",
        "column name '_bf_op' starts with _bf_",
        "primary_key names 'idd', no such column (did you mean 'id'?)",
        "primary_key names a column twice",
        "primary_key column w is double",
        "distribution_key column 'price' is not in the primary key",
        "vnode_count 1 is not a whole number in 2..32768",
    ):
        assert fault in found


@pytest.mark.parametrize("kind", ["float", "double", "binary"])
def test_a_key_column_of_a_type_without_order_is_refused(kind: str) -> None:
    assert f"primary_key column id is {kind}" in faults_of(
        {"name": "t", "columns": {"id": kind}, "primary_key": ["id"]}
    )


@pytest.mark.parametrize("count", [0, 1, 32_769, "64", 64.0, True, None])
def test_a_count_of_vnodes_out_of_range_or_of_another_type_is_refused(count: object) -> None:
    assert "vnode_count" in faults_of(ORDERS | {"vnode_count": count})


@pytest.mark.parametrize("count", [2, 32_768])
def test_the_limits_of_the_count_of_vnodes_are_allowed(count: int) -> None:
    assert declare(ORDERS | {"vnode_count": count}).vnode_count == count


@pytest.mark.parametrize("missing", ["name", "columns", "primary_key"])
def test_a_missing_key_is_named(missing: str) -> None:
    assert f"no '{missing}'" in faults_of({k: v for k, v in ORDERS.items() if k != missing})


@pytest.mark.parametrize("key", [[], "id", [1], {"id": 1}])
def test_a_primary_key_that_is_no_list_of_names_is_refused(key: object) -> None:
    assert "not a list of column names" in faults_of(ORDERS | {"primary_key": key})


@pytest.mark.parametrize("columns", [{}, ["id"], "id", None])
def test_columns_that_are_no_mapping_are_refused(columns: object) -> None:
    assert "columns is not a mapping" in faults_of(ORDERS | {"columns": columns})


def test_names_that_differ_only_in_case_are_refused() -> None:
    assert "differ only in case" in faults_of(ORDERS | {"columns": ORDERS["columns"] | {"ID": "int"}})


@pytest.mark.parametrize("declaration", [None, [], "orders"])
def test_a_declaration_that_is_no_mapping_is_refused(declaration: object) -> None:
    assert "instead of a mapping" in faults_of(declaration)


def test_rows_without_identity_have_neither_key_nor_vnodes() -> None:
    columns = {"name": "t", "columns": {"id": "int", "x": "double"}}
    table = declare(columns, has_key=False)
    assert (table.has_key, table.key_columns, table.key_of((1, 2.0))) == (False, (), ())
    assert all(column.nullable for column in table.columns)
    assert table.to_dict() == columns
    assert declare(table.to_dict(), has_key=None) == table
    assert declare(ORDERS, has_key=None) == declare(ORDERS)
    for key, value in {"primary_key": ["id"], "distribution_key": ["id"], "vnode_count": 8}.items():
        with pytest.raises(ConfigError, match=f"'{key}' is given, and rows of format append have no"):
            declare({**columns, key: value}, has_key=False)
    assert "no 'primary_key'" in faults_of(columns)
    assert "no 'primary_key'" in faults_of({**columns, "primary_key": None})
    with pytest.raises(ConfigError, match="no 'primary_key'"):
        declare({**columns, "vnode_count": 8}, has_key=None)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_reads_back_from_its_own_text(kind: ColumnType) -> None:
    assert ColumnType.parse(str(kind)) == kind


def test_case_and_blanks_around_do_not_matter() -> None:
    assert ColumnType.parse("  BigInt ") == ColumnType(TypeName.BIGINT)
    assert ColumnType.parse("DECIMAL( 18 , 2 )") == ColumnType(TypeName.DECIMAL, 18, 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("integer", "not one of boolean, int, bigint"),
        ("", "not one of"),
        ("varchar(10)", "not one of"),
        ("decimal", "needs its precision and scale"),
        ("decimal(18)", "not one of"),
        ("decimal(0,0)", "precision is 1..38"),
        ("decimal(39,2)", "precision is 1..38"),
        ("decimal(5,6)", "scale 0..precision"),
        ("decimal(5,-1)", "not one of"),
    ],
)
def test_what_is_no_type_is_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        ColumnType.parse(text)


def test_only_types_with_one_order_and_one_byte_form_are_allowed_in_a_key() -> None:
    refused = {name for name in TypeName if not ColumnType(name, 1, 0).allowed_in_key}
    assert refused == {TypeName.FLOAT, TypeName.DOUBLE, TypeName.BINARY}


def test_forms_of_the_types_that_need_more_than_a_name() -> None:
    decimal = ColumnType.parse("decimal(18,2)")
    assert decimal.avro == {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
    assert decimal.arrow == pa.decimal128(18, 2)
    assert ColumnType.parse("date").avro == {"type": "int", "logicalType": "date"}
    assert ColumnType.parse("date").arrow == pa.date32()
    assert ColumnType.parse("timestamp").avro == {"type": "long", "logicalType": "timestamp-micros"}
    assert ColumnType.parse("timestamp").arrow == pa.timestamp("us", tz="UTC")


def test_the_widest_decimal_fits_its_arrow_type() -> None:
    widest = Decimal("9" * 28 + "." + "9" * 10)
    assert pa.array([widest], ColumnType.parse("decimal(38,10)").arrow).to_pylist() == [widest]


HALVES = {Op.INSERT: (False, True), Op.UPDATE: (True, True), Op.DELETE: (True, False)}


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("has_before", [False, True])
@pytest.mark.parametrize("has_after", [False, True])
def test_a_change_is_well_formed_when_it_has_the_halves_of_its_op(
    op: Op, has_before: bool, has_after: bool
) -> None:
    change = Change(op, (1,) if has_before else None, (1,) if has_after else None)
    assert change.is_well_formed() == (HALVES[op] == (has_before, has_after))


def test_the_row_of_a_change_is_the_new_one_if_there_is_one() -> None:
    assert Change(Op.INSERT, None, (1, "new")).row == (1, "new")
    assert Change(Op.UPDATE, (1, "old"), (1, "new")).row == (1, "new")
    assert Change(Op.DELETE, (1, "old"), None).row == (1, "old")


def test_a_change_without_halves_has_no_row() -> None:
    with pytest.raises(ValueError, match="without before and after"):
        _ = Change(Op.DELETE, None, None).row
