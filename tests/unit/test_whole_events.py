"""Events of the format `debezium` that come with the row before them, read one by one, in each encoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.codec.logs import LogId, LogPosition
from schemas.errors import Code, InputError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Images
from schemas.records import Change, Op
from schemas.table import declare
from tests.kit.avro_records import encoded
from tests.kit.single_records import SingleRecords, single_records
from tests.kit.upstream_record import UpstreamRecord

AT = LogPosition(LogId("postgresql", "", ""), (5, 7))
TABLE = declare({"name": "t", "columns": {"id": "bigint", "note": "string"}, "primary_key": ["id"]})
KEY_FIELDS = [{"name": "id", "type": "long"}]
VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [*KEY_FIELDS, {"name": "note", "type": ["null", "string"]}],
}
SOURCE = [{"name": name, "type": "string"} for name in ("connector", "snapshot", "sequence")]
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", VALUE]},
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [*SOURCE, {"name": "lsn", "type": "long"}],
            },
        },
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": KEY_FIELDS}
KNOWN = KnownSchemas((WriterSchema(1, json.dumps(KEY)), WriterSchema(2, json.dumps(ENVELOPE))))
OLD, NEW = {"id": 7, "note": "old"}, {"id": 7, "note": "new"}
LEFT_OUT = {"id": 7, "note": "__debezium_unavailable_value"}

Write = Callable[[Any, Any], bytes]


def _in_json(schema: Any, value: Any) -> bytes:
    return json.dumps(value).encode()


def _in_avro(schema: Any, value: Any) -> bytes:
    return frame(1 if schema is KEY else 2) + encoded(schema, value)


@pytest.fixture(params=["json", "avro-registry"])
def reader(request: pytest.FixtureRequest) -> tuple[SingleRecords, Write]:
    format_ = DebeziumFormat(encoding=request.param, before="full").with_schemas(KNOWN)
    write = _in_json if request.param == "json" else _in_avro
    return single_records(format_, TABLE.columns, TABLE.key_columns), write


def event(op: str, before: Any, after: Any, snapshot: str = "false") -> dict[str, Any]:
    source = {"connector": "postgresql", "snapshot": snapshot, "sequence": '["5","7"]', "lsn": 7}
    return {"before": before, "after": after, "source": source, "op": op}


def read(reader: tuple[SingleRecords, Write], value: Any) -> UpstreamRecord:
    rows, write = reader
    return rows.read_record(write(KEY, {"id": 7}), write(ENVELOPE, value), where="t-0@7")


def test_an_event_is_the_change_that_it_says(reader: tuple[SingleRecords, Write]) -> None:
    old, new = (7, "old"), (7, "new")
    assert read(reader, event("c", None, NEW)) == UpstreamRecord(Change(Op.INSERT, None, new), (), AT)
    assert read(reader, event("r", None, NEW, "first")) == UpstreamRecord(
        Change(Op.INSERT, None, new), (), AT._replace(position=None)
    )
    assert read(reader, event("u", OLD, NEW)) == UpstreamRecord(Change(Op.UPDATE, old, new), (), AT)
    assert read(reader, event("d", OLD, None)) == UpstreamRecord(Change(Op.DELETE, old, None), (), AT)


def test_a_record_without_a_value_says_nothing_that_its_delete_has_not_said(
    reader: tuple[SingleRecords, Write],
) -> None:
    rows, write = reader
    for value in (None, b""):
        assert rows.read_record(write(KEY, {"id": 7}), value) == UpstreamRecord(None)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (event("u", None, NEW), Code.BEFORE_MISSING),
        (event("d", None, None), Code.BEFORE_MISSING),
        (event("r", None, NEW, "incremental"), Code.BEFORE_MISSING),
        (event("u", OLD, LEFT_OUT), Code.TOAST_UNAVAILABLE),
        (event("u", LEFT_OUT, NEW), Code.TOAST_UNAVAILABLE),
        (event("u", {**OLD, "id": 8}, NEW), Code.KEY_MISMATCH),
        (event("d", {**OLD, "id": 8}, None), Code.KEY_MISMATCH),
        (event("t", None, None), Code.TRUNCATE_UNSUPPORTED),
    ],
)
def test_what_lacks_the_row_that_was_promised_is_refused(
    reader: tuple[SingleRecords, Write], value: dict[str, Any], code: Code
) -> None:
    with pytest.raises(InputError) as caught:
        read(reader, value)
    assert (caught.value.code, caught.value.where) == (code, "t-0@7")


def test_the_format_promises_both_rows_and_leaves_nothing_out() -> None:
    whole, after_only = DebeziumFormat(before="full"), DebeziumFormat()
    assert (whole.images, whole.may_be_unchanged) == (Images.FULL, False)
    assert (after_only.images, after_only.may_be_unchanged) == (Images.AFTER_ONLY, True)
    assert whole.comes_again
