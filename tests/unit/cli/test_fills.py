"""The text of `backfill alter --fill`, which is the value as it stands."""

from __future__ import annotations

import json

import pytest

from schemas.errors import ConfigError
from schemas.kinds.table_changes import AddColumn
from streaming.cli.jobs.alter import _added


def filled(kind: str, text: str) -> object:
    [change] = _added([f"c: {kind}"], text, accept_missing=False)
    assert isinstance(change, AddColumn)
    return json.loads(change.declared)["fill"]


@pytest.mark.parametrize(
    "text",
    ["", " ", "open", "null", "5", "true", "2026-01-31", "it's", '"x"', "a #b", "a: b", "[", "${HOME}"],
)
def test_a_text_is_itself(text: str) -> None:
    assert filled("string", text) == text


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("boolean", "false", False),
        ("boolean", "True", True),
        ("int", "-5", -5),
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("float", "0.5", 0.5),
        ("double", "1E3", 1000.0),
        ("decimal(5,2)", "12.5", "12.50"),
        ("decimal(38,20)", "0.12345678901234567891", "0.12345678901234567891"),
        ("decimal(38,2)", "999999999999999999.99", "999999999999999999.99"),
        ("{type: 'decimal(5,0)', field: x}", "7", "7"),
        ("date", "1969-12-31", "1969-12-31"),
        ("timestamp", "1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"),
        ("binary", "AP8=", "AP8="),
        ("binary", "", ""),
    ],
)
def test_a_value_of_each_type(kind: str, text: str, value: object) -> None:
    assert filled(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("boolean", "yes"),
        ("boolean", "1"),
        ("int", ""),
        ("int", "010"),
        ("int", "0x10"),
        ("int", "1.0"),
        ("int", "[1]"),
        ("double", "nan"),
        ("decimal(5,2)", "1.255"),
        ("date", "2026-1-3"),
        ("timestamp", "2026-01-31 12:00:00.1234567"),
        ("binary", "AP8"),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ConfigError, match="TABLE_INVALID at --add: found column c: fill"):
        filled(kind, text)
