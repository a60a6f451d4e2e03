"""Columns declared with how records have them: what is taken, what is refused, and what a state is bound to."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from schemas.errors import Code, ConfigError, StateError
from schemas.formats.append import AppendFormat
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Format
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema, declare
from state.values.bound_table import BoundTable
from streaming.source.upstream_checks import UpstreamIdentity, binding
from tests.kit.single_records import single_records

UPSTREAM = UpstreamIdentity("t", "id", 1)
AVRO: Literal["avro-registry"] = "avro-registry"


def table(column: object, name: str = "c") -> TableSchema:
    return declare({"name": "t", "columns": {"id": "bigint", name: column}, "primary_key": ["id"]})


@pytest.mark.parametrize(
    "column",
    [
        {"type": "bigint", "field": "order-id"},
        *(
            {"type": "timestamp", "time": mode}
            for mode in ("milliseconds", "connect", "adaptive", "isostring")
        ),
        *({"type": "date", "time": mode} for mode in ("days", "isostring", "adaptive")),
        *({"type": "decimal(9,2)", "decimal": mode} for mode in ("precise", "string")),
        {"type": "decimal(20,0)", "unsigned": "wrapped"},
        {"type": "timestamp", "field": "größe. ", "time": "nanoseconds"},
    ],
)
def test_a_column_is_declared_and_written_out_as_it_is(column: dict[str, Any]) -> None:
    made = table(column)
    assert made.to_dict()["columns"] == {"id": "bigint", "c": column}
    assert declare(made.to_dict()) == made


@pytest.mark.parametrize(
    "column", ["bigint", {"type": "bigint"}, {"type": "bigint", "field": "c", "time": None}]
)
def test_a_column_without_any_of_it_is_its_type(column: object) -> None:
    assert table(column) == table("bigint")
    assert table(column).to_dict()["columns"] == {"id": "bigint", "c": "bigint"}


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ({}, "'' is not one of"),
        ({"type": "int", "filed": "x"}, "unknown key 'filed' (did you mean 'field'?)"),
        ({"type": "int", "field": ""}, "field '' is no text"),
        ({"type": "int", "field": 7}, "field 7 is no text"),
        ({"type": "int", "field": "\ud800"}, "is no text of"),
        ({"type": "int", "field": "x" * 1_001}, "is no text of"),
        ({"type": "int", "field": "id"}, "two columns are read from 'id'"),
        ({"type": "int", "time": "connect"}, "time is for columns of type date and timestamp, not int"),
        ({"type": "date", "time": "microseconds"}, "time 'microseconds' is not one of: days"),
        ({"type": "timestamp", "time": "days"}, "time 'days' is not one of: milliseconds"),
        ({"type": "timestamp", "time": []}, "time [] is not one of"),
        ({"type": "string", "decimal": "string"}, "decimal is for columns of type decimal"),
        ({"type": "decimal(9,0)", "unsigned": "wrapped"}, "unsigned is for decimal(20,0), not decimal(9,0)"),
        ({"type": "decimal(22,2)", "unsigned": "wrapped"}, "unsigned is for decimal(20,0)"),
        ({"type": "bigint", "unsigned": "wrapped"}, "unsigned is for columns of type decimal"),
        ({"type": "decimal(20,0)", "unsigned": "wraps"}, "unsigned 'wraps' is not one of: wrapped"),
        ({"type": "decimal(20,0)", "unsigned": "wrapped", "decimal": "string"}, "one of them"),
    ],
)
def test_what_a_column_can_not_be_is_named(column: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        table(column)
    assert caught.value.code is Code.TABLE_INVALID
    assert fault in caught.value.found


def test_a_name_that_no_column_has_is_refused_with_the_way_to_read_it() -> None:
    with pytest.raises(ConfigError) as caught:
        table("int", "order-id")
    assert "its name in records can be any text: field" in caught.value.found


@pytest.mark.parametrize(
    ("format_", "column", "reason"),
    [
        (
            ChangeFormat(),
            {"type": "int", "field": "x"},
            "field of column c is not read by format 'change avro'",
        ),
        (
            UpsertFormat(),
            {"type": "timestamp", "time": "connect"},
            "time of column c is not read by format 'upsert",
        ),
        (UpsertFormat(), {"type": "decimal(20,0)", "unsigned": "wrapped"}, None),
        (UpsertFormat(encoding=AVRO), {"type": "int", "field": "x"}, None),
        (DebeziumFormat(), {"type": "timestamp", "time": "connect"}, None),
        (
            DebeziumFormat(),
            "timestamp",
            "time left out, which is for columns of type date and timestamp: c",
        ),
        (DebeziumFormat(), {"type": "date", "time": "days"}, None),
        (DebeziumFormat(), "decimal(9,2)", "decimal left out, which is for columns of type decimal: c"),
        (DebeziumFormat(), {"type": "decimal(9,2)", "decimal": "string"}, None),
        (DebeziumFormat(), {"type": "decimal(20,0)", "unsigned": "wrapped"}, None),
        (
            DebeziumFormat(encoding=AVRO),
            {"type": "decimal(9,2)", "decimal": "string"},
            "decimal of column c is not",
        ),
        (DebeziumFormat(encoding=AVRO), {"type": "decimal(20,0)", "unsigned": "wrapped"}, None),
    ],
)
def test_a_format_says_which_of_it_it_reads(format_: Format, column: object, reason: str | None) -> None:
    found = format_.incompatibility_as_upstream(table(column))
    assert found is None if reason is None else reason in (found or "")


def test_rows_without_identity_may_have_other_names() -> None:
    columns = {"name": "t", "columns": {"c": {"type": "int", "field": "a-b"}}}
    rows = declare(columns, has_key=False)
    assert AppendFormat().incompatibility_as_upstream(rows) is None
    change = single_records(AppendFormat(), rows.columns, ()).read_record(None, b'{"a-b":5}').change
    assert change is not None
    assert change.after == (5,)


def test_a_key_column_that_is_read_from_a_part_of_a_frame_is_refused() -> None:
    columns = {"id": {"type": "int", "field": "payload"}}
    made = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
    assert "as a part of a record" in str(DebeziumFormat().incompatibility(made))


def test_a_state_is_bound_to_names_and_units() -> None:
    plain, millis = table("timestamp"), table({"type": "timestamp", "time": "milliseconds"})
    known = BoundTable.from_binding(binding(BoundTable.first(plain, None), UPSTREAM))
    assert known.to_dict()["columns"] == {"id": "bigint", "c": "timestamp"}
    assert known.declared(plain, None, state="s") == known
    own = BoundTable.first(millis, None)
    assert own.declared(millis, None, state="s") == own
    others = (
        millis,
        table({"type": "timestamp", "time": "nanoseconds"}),
        table({"type": "timestamp", "field": "at"}),
    )
    for other in others:
        with pytest.raises(StateError) as caught:
            known.declared(other, None, state="s")
        assert caught.value.code is Code.SCHEMA_CHANGED
