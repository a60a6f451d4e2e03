"""Configured meanings of values in Avro: wrapped numbers, surplus digits, deletes that are rows, placeholders."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.errors import Code, InputError
from schemas.formats.append import AppendFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.records import Change, Op
from schemas.table import TableSchema, declare
from tests.kit.avro_records import framed
from tests.kit.single_records import single_records
from tests.kit.two_ways import NotColumnarError, as_text, fast, one_by_one
from tests.kit.upstream_record import UpstreamRecord

WRAPPED = {"type": "decimal(20,0)", "unsigned": "wrapped"}


def table(key: str = "id", **columns: Any) -> TableSchema:
    return declare({"name": "t", "columns": {"id": "bigint"} | columns, "primary_key": [key]})


def record(name: str, **fields: Any) -> Any:
    listed = [{"name": each, "type": kind} for each, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def known(format_: RegistryFormat, *schemas: Any) -> RegistryFormat:
    """With these schemas under 1, 2, ..."""
    return format_.with_schemas(
        KnownSchemas(tuple(WriterSchema(number, json.dumps(each)) for number, each in enumerate(schemas, 1)))
    )


def read(
    format_: UpstreamFormat, of: TableSchema, key: bytes, value: bytes | None, *, is_fast: bool = True
) -> UpstreamRecord:
    """A record as both ways of the decoder read it."""
    [found] = one_by_one(format_, of, [(key, value)])
    try:
        assert as_text(fast(format_, of, [(key, value)] * 2)) == as_text([found] * 2)
    except NotColumnarError:
        assert not is_fast
    return found


def refused(format_: UpstreamFormat, of: TableSchema, key: bytes, value: bytes) -> Code:
    with pytest.raises(NotColumnarError):
        fast(format_, of, [(key, value)])
    with pytest.raises(InputError) as caught:
        single_records(format_, of.columns, of.key_columns).read_record(key, value, where="t-0@7")
    return caught.value.code


UPSERT = UpsertFormat(encoding="avro-registry", key="avro")
BIG = [(-1, 2**64 - 1), (-(2**63), 2**63), (2**63 - 1, 2**63 - 1), (0, 0)]


@pytest.mark.parametrize(("number", "meant"), BIG)
def test_numbers_beyond_63_bits_are_unwrapped_in_values_and_keys(number: int, meant: int) -> None:
    row = record("Row", u="long", w=["null", "long"])
    format_, of = known(UPSERT, "long", row), table(u=WRAPPED, w={**WRAPPED, "type": "decimal(38,0)"})
    found = read(format_, of, framed(1, "long", 7), framed(2, row, {"u": number, "w": number}))
    assert found.change is not None
    assert found.change.after == (7, Decimal(meant), Decimal(meant))
    own = table(id=WRAPPED)
    for each, key in ((UPSERT, "long"), (UpsertFormat(encoding="avro-registry"), record("Key", id="long"))):
        value = number if key == "long" else {"id": number}
        found = read(known(each, key, row), own, framed(1, key, value), None)
        assert found.change is not None
        assert found.change.before == (Decimal(meant),)


@pytest.mark.parametrize(
    "kind", ["int", "string", {"type": "bytes", "logicalType": "decimal", "precision": 20}]
)
def test_what_is_no_long_is_no_wrapped_number(kind: Any) -> None:
    row = record("Row", u=kind)
    value = frame(2) + b"\x02\x01"
    format_ = known(UPSERT, "long", row)
    assert refused(format_, table(u=WRAPPED), framed(1, "long", 7), value) is Code.SCHEMA_INCOMPATIBLE


@pytest.mark.parametrize("sub_micros", ["refuse", "truncate"])
@pytest.mark.parametrize(
    ("kind", "raw", "micros"),
    [
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_999, 1),
        ({"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"}, -1, -1),
        ("string", "1970-01-01T00:00:00.0000019Z", 1),
    ],
)
def test_digits_beyond_microseconds_are_refused_or_cut_off(
    sub_micros: Any, kind: Any, raw: Any, micros: int
) -> None:
    plain, of = record("Row", at=kind if kind == "string" else "long"), table(at="timestamp")
    value = framed(2, plain, {"at": raw})
    appended = AppendFormat(encoding="avro-registry", sub_micros=sub_micros)
    upserted = UpsertFormat(encoding="avro-registry", key="avro", sub_micros=sub_micros)
    for each in (upserted, appended):
        format_ = known(each, "long", record("Row", at=kind))
        rows = single_records(format_, of.columns, of.key_columns)
        if sub_micros == "refuse":
            with pytest.raises(InputError) as caught:
                rows.read_record(framed(1, "long", 7), value)
            assert caught.value.code is Code.VALUE_OUT_OF_RANGE
            continue
        change = rows.read_record(framed(1, "long", 7), value).change
        assert change is not None
        assert change.after is not None
        assert change.after[-1] == dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
    if sub_micros == "truncate" and kind != "string":
        read(known(upserted, "long", record("Row", at=kind)), of, framed(1, "long", 7), value)


@pytest.mark.parametrize("kind", ["string", ["null", "string"], "boolean", ["boolean", "null"], "null"])
def test_a_row_that_says_that_it_is_deleted_deletes_its_key(kind: Any) -> None:
    row, of, key = record("Row", __deleted=kind, v="string"), table(v="string"), framed(1, "long", 7)
    format_ = known(UPSERT, "long", row)
    is_text = "string" in kind
    said = {False: "false", True: "true"} if is_text else {False: False, True: True}
    for is_deleted in (False, True) if kind != "null" else ():
        found = read(format_, of, key, framed(2, row, {"__deleted": said[is_deleted], "v": "x"})).change
        assert found is not None
        assert found.op is (Op.DELETE if is_deleted else Op.INSERT)
        assert found.after == (None if is_deleted else (7, "x"))
    if isinstance(kind, list) or kind == "null":
        found = read(format_, of, key, framed(2, row, {"__deleted": None, "v": "x"})).change
        assert found is not None
        assert found.after == (7, "x")


def test_a_field_of_deletes_may_be_named_be_a_column_and_be_none() -> None:
    row, key = record("Row", gone="string", v="string"), framed(1, "long", 7)
    value, odd = (framed(2, row, {"gone": gone, "v": "x"}) for gone in ("true", "yes"))
    for columns in ({"v": "string"}, {"v": "string", "gone": "string"}):
        of = table(**columns)
        named = known(UpsertFormat(encoding="avro-registry", key="avro", deleted_field="gone"), "long", row)
        found = read(named, of, key, value).change
        assert found is not None
        assert found.op is Op.DELETE
        assert refused(named, of, key, odd) is Code.CHANGE_MALFORMED
        none = known(UpsertFormat(encoding="avro-registry", key="avro", deleted_field=None), "long", row)
        found = read(none, of, key, odd).change
        assert found is not None
        assert found.op is Op.INSERT
    number = record("Row", __deleted="long", v="string")
    value = framed(2, number, {"__deleted": 1, "v": "x"})
    assert refused(known(UPSERT, "long", number), table(v="string"), key, value) is Code.SCHEMA_INCOMPATIBLE


def test_deletes_among_rows_are_kept_apart() -> None:
    row, of = record("Row", __deleted=["null", "string"], v="string"), table(v="string")
    format_ = known(UPSERT, "long", row)
    said: list[str | None] = ["true", "false", None, "true"]
    values = [framed(2, row, {"__deleted": each, "v": str(at)}) for at, each in enumerate(said)]
    keys = [framed(1, "long", number) for number in range(5)]
    records = zip(keys, [values[0], None, *values[1:]], strict=True)
    changes = [each.change for each in fast(format_, of, list(records))]
    assert changes == [
        Change(Op.DELETE, (0, None), None),
        Change(Op.DELETE, (1, None), None),
        Change(Op.INSERT, None, (2, "1")),
        Change(Op.INSERT, None, (3, "2")),
        Change(Op.DELETE, (4, None), None),
    ]


SOURCE = record("Source", connector="string", snapshot="string")
ROW = record("Value", id="long", note=["null", "string"], raw=["null", "bytes"])
ENVELOPE = record("Envelope", before=["null", ROW], after=["null", "Value"], source=SOURCE, op="string")


@pytest.mark.parametrize(
    ("note", "raw"),
    [("gone", b"gone"), (b"gone".hex(), b"gone"), ("Z29uZQ==", b"gone"), ('["gone"]', b"gone")],
)
def test_the_connectors_placeholder_is_known_in_each_of_its_forms(note: str, raw: bytes) -> None:
    of, key = table(note="string", raw="binary"), record("Key", id="long")
    format_ = known(DebeziumFormat(encoding="avro-registry", unavailable="gone"), key, ENVELOPE)
    after = {"id": 7, "note": note, "raw": raw}
    source = {"connector": "postgresql", "snapshot": "false"}
    event = {"before": None, "after": after, "source": source, "op": "u"}
    found = read(format_, of, framed(1, key, {"id": 7}), framed(2, ENVELOPE, event))
    assert found.unchanged == (1, 2)
    usual = {**event, "after": {**after, "note": "__debezium_unavailable_value", "raw": b"x"}}
    assert read(format_, of, framed(1, key, {"id": 7}), framed(2, ENVELOPE, usual)).unchanged == ()


def test_a_column_has_the_name_that_its_field_gives_it() -> None:
    text = json.dumps(record("Row", größe="long", n="long"))
    schemas = KnownSchemas((WriterSchema(1, '"long"'), WriterSchema(2, text)))
    of = table(size={"type": "bigint", "field": "größe"}, m={"type": "bigint", "field": "n"})
    value = framed(2, record("Row", a="long", n="long"), {"a": 5, "n": 6})
    found = read(UPSERT.with_schemas(schemas), of, framed(1, "long", 7), value)
    assert found.change is not None
    assert found.change.after == (7, 5, 6)
