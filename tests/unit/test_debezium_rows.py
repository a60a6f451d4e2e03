"""What stands in place of a value that the database did not log is never taken for a value."""

from __future__ import annotations

import json

import pytest

from schemas.formats.debezium import DebeziumFormat
from schemas.table import declare
from tests.kit.single_records import single_records

TABLE = declare({"name": "t", "columns": {"id": "bigint", "wide": "string"}, "primary_key": ["id"]})
PLACEHOLDER = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    "left_out",
    [
        PLACEHOLDER,
        [PLACEHOLDER],
        # An array of integers has the bytes of the text, one of uuids the uuid that is named by it.
        list(PLACEHOLDER.encode()),
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="],
        {PLACEHOLDER: PLACEHOLDER},
    ],
    ids=["text", "texts", "integers", "uuids", "bytes", "map"],
)
def test_a_value_of_any_type_that_is_left_out_is_seen(left_out: object) -> None:
    rows = single_records(DebeziumFormat(), TABLE.columns, TABLE.key_columns)
    value = json.dumps({"op": "u", "after": {"id": 1, "wide": left_out}, "source": {}}).encode()
    assert rows.read_record(b'{"id":1}', value).unchanged == (1,)
    value = json.dumps({"op": "u", "after": {"id": 1, "wide": [left_out, 1]}, "source": {}}).encode()
    assert rows.read_record(b'{"id":1}', value).unchanged == ()
