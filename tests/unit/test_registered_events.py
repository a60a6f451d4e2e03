"""Events of the format `debezium` in Avro by a schema registry, read one by one."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.codec.logs import LogId, LogPosition
from schemas.errors import Code, InputError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Framed
from schemas.records import Change, Op
from schemas.table import declare
from tests.kit.avro_records import OWN_SCALE, framed
from tests.kit.single_records import SingleRecords, single_records
from tests.kit.upstream_record import UpstreamRecord

TABLE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "amount": "decimal(9,2)", "note": "string", "raw": "binary"},
        "primary_key": ["id"],
    }
)
KEY_SCHEMA = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "amount", "type": ["null", OWN_SCALE]},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "connector", "type": "string"},
        {"name": "snapshot", "type": ["string", "null"]},
        {"name": "sequence", "type": ["null", "string"]},
        {"name": "lsn", "type": ["null", "long"]},
    ],
}
ENVELOPE: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
HEARTBEAT = {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}
AFTER = {"id": 7, "amount": {"scale": 3, "value": b"\x05\xdc"}, "note": "n", "raw": None}
PLACE = {"connector": "postgresql", "snapshot": "false", "sequence": '["5","7"]', "lsn": 7}
AT = LogPosition(LogId("postgresql", "", ""), (5, 7))
KEY = framed(1, KEY_SCHEMA, {"id": 7})


def rows(**more: Any) -> SingleRecords:
    schemas = {1: KEY_SCHEMA, 2: ENVELOPE, 3: HEARTBEAT} | {
        int(name[1:]): each for name, each in more.items()
    }
    known = KnownSchemas(tuple(WriterSchema(number, json.dumps(each)) for number, each in schemas.items()))
    format_ = DebeziumFormat(encoding="avro-registry").with_schemas(known)
    return single_records(format_, TABLE.columns, TABLE.key_columns)


def event(op: str = "u", after: Any = AFTER, **more: Any) -> bytes:
    value = {"before": None, "after": after, "source": PLACE, "op": op, "ts_ms": 1, **more}
    return framed(2, ENVELOPE, value)


def refused(key: bytes | None, value: bytes | None, reader: SingleRecords | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        (reader or rows()).read_record(key, value, where="t-0@7")
    assert caught.value.where == "t-0@7"
    return caught.value


def test_an_event_says_what_the_row_is_now_and_where_it_stands() -> None:
    row = (7, Decimal("1.50"), "n", None)
    for op in ("r", "c", "u"):
        record = rows().read_record(KEY, event(op))
        assert record == UpstreamRecord(Change(Op.INSERT, None, row), (), AT)
    gone = Change(Op.DELETE, (7, None, None, None), None)
    assert rows().read_record(KEY, event("d", None, before=AFTER)) == UpstreamRecord(gone, (), AT)
    for value in (None, b""):
        assert rows().read_record(KEY, value) == UpstreamRecord(gone)
    assert rows().read_change(KEY, event()).after == row


@pytest.mark.parametrize(
    "other",
    [
        {"connector": "mysql"},
        {"connector": "oracle"},
        {"snapshot": "incremental"},
        {"sequence": '[null,"7"]'},
        {"lsn": None},
    ],
)
def test_a_place_that_can_not_be_compared_is_none(other: dict[str, Any]) -> None:
    assert rows().read_record(KEY, event(source={**PLACE, **other})).position is None


def test_what_another_connector_has_under_these_names_is_passed_over() -> None:
    source = {
        **SOURCE,
        "fields": [{"name": "lsn", "type": "string"}, {"name": "snapshot", "type": "boolean"}],
    }
    fields = [{**each, "type": source} if each["name"] == "source" else each for each in ENVELOPE["fields"]]
    envelope = {**ENVELOPE, "fields": fields}
    value = {"before": None, "after": AFTER, "source": {"lsn": "x", "snapshot": True}, "op": "c", "ts_ms": 1}
    record = rows(s9=envelope).read_record(KEY, framed(9, envelope, value))
    assert record.position is None
    assert record.change is not None


def test_values_that_are_left_out_are_named_by_their_columns() -> None:
    text = "__debezium_unavailable_value"
    record = rows().read_record(KEY, event(after={**AFTER, "note": text, "raw": text.encode()}))
    assert record.unchanged == (2, 3)
    assert record.change == Change(Op.INSERT, None, (7, Decimal("1.50"), None, None))


def test_messages_and_heartbeats_say_nothing_of_the_table() -> None:
    other = frame(1) + b"not its key"
    assert rows().read_record(other, event("m", None)).change is None
    assert rows().read_record(other, framed(3, HEARTBEAT, {"ts_ms": 1})).change is None
    with pytest.raises(ValueError, match="no data"):
        rows().read_change(KEY, event("m", None))


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (event("t", None), Code.TRUNCATE_UNSUPPORTED),
        (event("x"), Code.UNKNOWN_OP),
        (event("d"), Code.CHANGE_MALFORMED),
        (event("c", None), Code.CHANGE_MALFORMED),
        (event(after={**AFTER, "id": 8}), Code.KEY_MISMATCH),
        (event(after={**AFTER, "amount": {"scale": 3, "value": b"\x01"}}), Code.VALUE_OUT_OF_RANGE),
        (event(after={**AFTER, "amount": {"scale": -1_000, "value": b"\x01"}}), Code.CHANGE_MALFORMED),
        (event(after={**AFTER, "amount": {"scale": 2, "value": b""}}), Code.CHANGE_MALFORMED),
        (event()[:-1], Code.AVRO_TRUNCATED),
        (event() + b"\x00", Code.AVRO_TRAILING),
        (b"{}", Code.CHANGE_MALFORMED),
        (frame(4), Code.SCHEMA_UNKNOWN),
        (framed(1, KEY_SCHEMA, {"id": 7}), Code.SCHEMA_INCOMPATIBLE),
    ],
)
def test_what_is_no_event_of_the_table_is_refused(value: bytes, code: Code) -> None:
    assert refused(KEY, value).code is code


def test_a_key_that_is_none_is_a_mismatch() -> None:
    for key in (None, b"", b"7", KEY + b"\x00"):
        expected = Code.AVRO_TRAILING if key and key.startswith(KEY) else Code.KEY_MISMATCH
        assert refused(key, event()).code is expected


def test_the_schema_says_what_the_settings_say_of_json() -> None:
    format_ = DebeziumFormat(encoding="avro-registry")
    assert format_.incompatibility(TABLE) is None
    assert format_.framed == Framed(key=True, value=True)
    assert not DebeziumFormat(time="connect").framed
    with_time = DebeziumFormat(encoding="avro-registry", time="connect")
    assert with_time.incompatibility(TABLE) == "time is for encoding 'json': in Avro the schema says it"
    fits = format_.incompatibility_of_schema("value", WriterSchema(2, json.dumps(ENVELOPE)), TABLE)
    assert fits is None
    lacking = format_.incompatibility_of_schema("value", WriterSchema(1, json.dumps(KEY_SCHEMA)), TABLE)
    assert lacking == "a record that is no change event: it has no op"
    wider = declare({"name": "t", "columns": {"id": "bigint", "raw": "date"}, "primary_key": ["id"]})
    assert "field raw is bytes" in str(
        format_.incompatibility_of_schema("value", WriterSchema(2, json.dumps(ENVELOPE)), wider)
    )
    assert format_.incompatibility_of_schema("key", WriterSchema(1, json.dumps(KEY_SCHEMA)), TABLE) is None
