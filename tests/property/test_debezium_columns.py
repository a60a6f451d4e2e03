"""Debezium's events in JSON: usual ones are read as columns, and each other one by itself."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from schemas.errors import Code, InputError
from schemas.formats.debezium import DebeziumFormat
from schemas.json.placeholder import UNAVAILABLE
from schemas.json.tokens import MAX_DEPTH, MAX_NUMBER
from schemas.table import declare
from tests.kit.decoding import Record
from tests.kit.two_ways import agree, one_by_one, results, results_alone
from tests.kit.two_ways import fast as by_columns
from tests.property.test_decoded_events import FRAMED, PRECISE, TABLE, TEXT, WHOLE

PLAIN = {"precise": PRECISE, "transactions": PRECISE.with_transactions(), "text": TEXT, "whole": WHOLE}


def event(**fields: object) -> Record:
    key = {"name": "a", "id": 7}
    source = {"connector": "postgresql", "snapshot": "false", "sequence": '["5","7"]', "lsn": 7, "txId": 9}
    value = {"before": None, "after": {**key, **fields}, "source": source, "op": "u", "ts_ms": 1}
    return tuple(json.dumps(each, separators=(",", ":")).encode() for each in (key, value))  # type: ignore[return-value]


SOUND = event(n=1, at=5, day=3, small="AQ==", ratio=0.5, note="x", raw="AQ==", ok=True)


@pytest.mark.parametrize("format_", PLAIN.values(), ids=PLAIN)
def test_a_usual_event_is_read(format_: DebeziumFormat) -> None:
    written = (
        {"small": "1.25", "day": "2026-01-31Z", "at": "2026-01-31T10:11:12.5Z"} if format_ is TEXT else {}
    )
    before = {"before": json.loads(SOUND[1] or b"")["after"]} if format_ is WHOLE else {}
    value = json.loads(SOUND[1] or b"") | before
    value["after"] |= written
    assert agree(
        format_, TABLE, [(SOUND[0], json.dumps(value).encode()), *([] if before else [(SOUND[0], None)])]
    )


def inserted(text: bytes) -> Record:
    """Behind the op, where the reference decoder looks at nothing, but reads all."""
    assert SOUND[1] is not None
    return SOUND[0], SOUND[1].replace(b'"op":"u"', b'"op":"u","more":' + text)


@pytest.mark.parametrize(
    "broken",
    [
        inserted(b"NaN"),
        inserted(b"-Infinity"),
        inserted(b"[1,Inf]"),
        inserted(b"1" * (MAX_NUMBER + 1)),
        inserted(b"1." + b"1" * MAX_NUMBER),
        inserted(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH),
        inserted(b'{"%s":1}' % (b"x" * 50_001)),
        inserted(b"01"),
        inserted(b'"\x01"'),
        inserted(b'"\xff"'),
        (SOUND[0], (SOUND[1] or b"") + b"{}"),
        (SOUND[0], b'{"schema":1,"payload":null,' + (SOUND[1] or b"")[1:]),
        (b'{"name":"a","id":7,"more":1}', SOUND[1]),
        (b'{"name":"a"}', SOUND[1]),
        (b'{"name":"b","id":7}', SOUND[1]),
        (None, None),
        event(ratio=1e400),
        event(small="AQ"),
        event(small=""),
        event(small="f////////////////w=="),
        event(at="2026-02-30T10:11:12Z"),
        event(at=2**62),
        event(day=2_932_897),
    ],
)
def test_an_invalid_record_is_one_whatever_stands_next_to_it(broken: Record) -> None:
    [code], [sound] = (results_alone(PRECISE, TABLE, [each]) for each in (broken, SOUND))
    assert code in set(Code)
    assert results(PRECISE, TABLE, [broken]) == [code]
    assert results(PRECISE, TABLE, [SOUND, broken]) == [sound, code]
    assert results(PRECISE, TABLE, [broken, SOUND]) == [code, sound]


def framed(record: Record, unit: str = "io.debezium.time.MicroTimestamp", scale: str = "2") -> Record:
    """With its schemas, as Kafka Connect writes them."""
    fields = [
        {"field": "at", "type": "int64", "name": unit},
        {"field": "small", "type": "bytes", "parameters": {"scale": scale}},
    ]
    after = {"type": "struct", "fields": fields, "field": "after"}
    frames = {"type": "struct"}, {"type": "struct", "fields": [after]}
    return tuple(  # type: ignore[return-value]
        part and b'{"schema":%s,"payload":%s}' % (json.dumps(frame).encode(), part)
        for frame, part in zip(frames, record, strict=True)
    )


def test_events_with_one_schema_are_read_by_what_it_says() -> None:
    records = [framed(SOUND), framed(event(at=7)), (framed(SOUND)[0], None)]
    assert agree(FRAMED, TABLE, records)
    in_millis = [framed(each, "io.debezium.time.Timestamp") for each in (SOUND, event(at=7))]
    assert agree(FRAMED, TABLE, in_millis)
    decoder = FRAMED.decoder(TABLE.columns, TABLE.key_columns)
    for batch, expected in ((records[:2], 7), (in_millis, 7_000), (records[:2], 7)):
        rows = decoder.decode(
            *(pa.array([each[half] for each in batch], pa.binary()) for half in (0, 1))
        ).after
        assert rows.field("at").cast(pa.int64()).to_pylist() == [5 * expected // 7, expected]
    assert agree(FRAMED, TABLE, [records[2]])


@pytest.mark.parametrize(
    "other",
    [
        framed(SOUND, "io.debezium.time.Timestamp"),
        framed(SOUND, scale="3"),
        SOUND,
        (framed(SOUND)[0], SOUND[1]),
        (SOUND[0], framed(event(at="x"))[1]),
        (framed(SOUND)[0], (framed(SOUND)[1] or b"")[:-1]),
        (framed(SOUND)[0], (framed(SOUND)[1] or b"")[:-1] + b',"more":1}'),
        (framed(SOUND)[0], (framed(SOUND)[1] or b"")[:-1] + b"{}}"),
        (framed(SOUND)[0], b'{"schema":null,"payload":null}'),
        (framed(SOUND)[0], b'{"schema":{"a":1,"payload":2},"payload":{}}'),
        (framed(SOUND)[0], b'{"schema":"\xff","payload":{}}'),
        framed((b"{}", SOUND[1])),
    ],
)
def test_records_in_other_frames_are_read_by_their_own(other: Record) -> None:
    for records in ([framed(SOUND), other], [other, framed(SOUND)], [other, framed(SOUND), other]):
        assert results(FRAMED, TABLE, records) == results_alone(FRAMED, TABLE, records)


def test_an_empty_value_is_a_delete() -> None:
    assert agree(PRECISE, TABLE, [(SOUND[0], b""), SOUND])


def test_digits_beyond_128_bits_are_odd() -> None:
    """Arrow's cast lets some of them wrap around."""
    table = declare({"name": "t", "columns": {"id": "bigint", "c": "decimal(38,10)"}, "primary_key": ["id"]})
    form = DebeziumFormat(decimal="string")

    def of(digits: str) -> Record:
        event = {"op": "c", "after": {"id": 7, "c": digits}, "source": {"connector": "mysql"}}
        return b'{"id":7}', json.dumps(event).encode()

    assert agree(form, table, [of("9" * 28 + "." + "9" * 10), of("-0.5")])
    for digits in ("39614081257132168796771975168.0", "-39614081257132168796771975168", "1" + "0" * 28):
        with pytest.raises(InputError):
            one_by_one(form, table, [of(digits)])
        assert not agree(form, table, [of(digits)])


def test_values_that_are_left_out_are_named() -> None:
    records = [event(note=UNAVAILABLE, n=1), SOUND, event(n=2)]
    assert agree(PRECISE, TABLE, records)
    assert [each.unchanged for each in by_columns(PRECISE, TABLE, records)] == [(6,), (), ()]
    assert results(WHOLE, TABLE, records) == results_alone(WHOLE, TABLE, records)
