"""Columns under other names in records, and what stands in place of a value that the database did not log."""

from __future__ import annotations

import base64
import json

import pytest

from schemas.codec.json.reader import can_be_typed
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.upsert import UpsertFormat
from schemas.json.placeholder import placeholder
from schemas.table import declare
from tests.kit.one_value import LEFT_OUT, by_columns, compact, event, read, table_of
from tests.kit.single_records import single_records

NAMES = [
    "order-id",
    "row.values",
    "3ALPHA",
    "/VSO/R_PKGRP",
    "user name",
    "größe",
    'a"b',
    "a\\b",
    "id\n",
    "_bf_op",
    "😀",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_column_may_have_any_name_in_records(name: str) -> None:
    columns = {"id": "bigint", "c": {"type": "int", "field": name}}
    table = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
    assert table.to_dict()["columns"] == columns
    assert read(DebeziumFormat(), table, event(5, name=name)) == 5
    assert read(DebeziumFormat(), table, event(5, {"type": "int32"}, name=name)) == 5
    assert by_columns(DebeziumFormat(), table, [event(5, name=name)], [5]) == can_be_typed([name])
    upserts = UpsertFormat()
    record = b'{"id":7}', compact({"id": 7, name: 5})
    assert read(upserts, table, record) == 5
    assert by_columns(upserts, table, [record], [5]) == can_be_typed([name])
    assert read(upserts, table, (b'{"id":7}', compact({"id": 7, "c": 5}))) is None
    own = declare({"name": "t", "columns": {"id": {"type": "int", "field": name}}, "primary_key": ["id"]})
    for format_ in (DebeziumFormat(), upserts):
        assert single_records(format_, own.columns, own.key_columns).read_key(compact({name: 5})) == (5,)


@pytest.mark.parametrize("setting", [None, "N/A", "größe", "hex:5f5f6e6f6e65", '"quoted" \\ text'])
@pytest.mark.parametrize("kind", ["string", "binary"])
def test_a_placeholder_is_known_in_every_form(setting: str | None, kind: str) -> None:
    made = placeholder() if setting is None else placeholder(setting)
    format_ = DebeziumFormat() if setting is None else DebeziumFormat(unavailable=setting)
    table, text = table_of(kind), made.text
    numbers = [byte - 256 if byte > 127 else byte for byte in text.encode()]
    single = [base64.b64encode(bytes([byte])).decode() for byte in text.encode()]
    url_safe = base64.urlsafe_b64encode(text.encode()).decode()
    forms: list[object] = [
        *(text, [text], text.encode().hex(), made.base64, [made.base64], url_safe, url_safe.rstrip("=")),
        *(numbers, [float(each) for each in numbers], single, [True] * len(numbers), {text: text}),
        *(json.dumps({text: text}, ensure_ascii=False, separators=(",", ":")),),
        [{"scale": 0, "value": each} for each in single],
    ]
    for form in [made.base64] if kind == "binary" else forms:
        assert read(format_, table, event(form)) == LEFT_OUT, form
    if kind == "string":
        for other in ("x", [text, text], numbers[1:], {text: "x"}, f"{text} ", None, [], "__debezium"):
            assert read(format_, table, event(other)) != LEFT_OUT, other


def test_the_uuid_of_a_placeholder_is_that_of_its_bytes() -> None:
    assert '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]' in placeholder().texts


@pytest.mark.parametrize("setting", ["", "hex:", "hex:5", "hex:zz", "hex:ff"])
def test_a_placeholder_that_is_no_text_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="unavailable"):
        DebeziumFormat(unavailable=setting)
