"""The checker's reader and the service's decoder say the same of each record, the odd ones included.

Both are written from the contract, without a look at each other; where they differ, one of them is wrong.
"""

from __future__ import annotations

import json

import pytest

from schemas.avro.registered import KnownSchemas
from schemas.errors import Code, InputError
from schemas.formats.append import AppendFormat
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.upsert import UpsertFormat
from schemas.table import declare
from streaming.reading.records.forms import RecordForm
from streaming.reading.records.reader import reader_of
from tests.kit.avro_events import events
from tests.kit.avro_records import batches
from tests.kit.debezium import RECORDED, UNLISTED, recorded, recorded_schemas
from tests.kit.faulty_records import BROKEN, TABLE
from tests.kit.json_records import ODD, records
from tests.kit.service_reading import Record, disagreements
from tests.kit.values import TYPES, drawn

WIDE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "name": "string"} | {f"c{n}": str(kind) for n, kind in enumerate(TYPES)},
        "primary_key": ["name", "id"],
    }
)
KEY = b'{"name":"a","id":7}'


def odd_cells() -> list[Record]:
    """Each odd text in each column, and beside columns."""
    names = [*WIDE.column_names, "other"]
    texts = [f'{{"{name}":{cell}}}' for name in names for cell in ODD if "," not in cell]
    return [(KEY, text.encode("utf-8", "surrogatepass")) for text in texts]


def test_rows_in_json() -> None:
    found = [each for odd in (False, True) for each in drawn(records(WIDE, key="record", odd=odd), 150)]
    assert disagreements(UpsertFormat(), WIDE, found) == []


def test_every_odd_cell_in_every_column() -> None:
    assert disagreements(UpsertFormat(), WIDE, odd_cells()) == []
    assert disagreements(UpsertFormat(sub_micros="truncate"), WIDE, odd_cells()) == []


@pytest.mark.parametrize("odd", [False, True], ids=["sound", "odd"])
def test_rows_and_events_by_a_registry(odd: bool) -> None:
    for schemas, found in drawn(batches(WIDE, key="record", odd=odd), 1):
        format_ = UpsertFormat(encoding="avro-registry").with_schemas(KnownSchemas(schemas))
        assert disagreements(format_, WIDE, found) == []
    for schemas, found in drawn(events(WIDE, odd=odd, whole=True), 1):
        whole = DebeziumFormat(encoding="avro-registry", before="full").with_schemas(KnownSchemas(schemas))
        assert disagreements(whole, WIDE, found) == []


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("plain", DebeziumFormat(time="microseconds", decimal="precise")),
        ("schemas", DebeziumFormat(time="adaptive", decimal="precise")),
        ("avro", DebeziumFormat(encoding="avro-registry").with_schemas(recorded_schemas())),
    ],
)
def test_recorded_events(name: str, format_: DebeziumFormat) -> None:
    found: list[Record] = [(each.key, each.value) for each in recorded(name) if "orders" in each.topic]
    table = UNLISTED if name == "avro" else RECORDED
    assert disagreements(format_, table, found) == []
    others: list[Record] = [(each.key, each.value) for each in recorded(name) if each.topic == "message"]
    assert disagreements(format_, table, others) == []


def test_broken_changes() -> None:
    found = [pair for _, pair in sorted(BROKEN.items()) if pair[0] is not None]
    assert (
        disagreements(ChangeFormat(), TABLE, [(None, value) for value, _ in found if value is not None]) == []
    )


ROWS = declare(
    {"name": "t", "columns": {"n": "bigint", "r": "double", "d": "decimal(38,9)", "s": "string"}},
    has_key=False,
)
DEEP = "[" * 998 + "]" * 998
REFUSED = [
    *("1.0", "1e3", '"1"', "true", "9223372036854775808"),  # of a whole number
    *("NaN", "01", "+1", "'1'", "1}{"),
]
ODD_BYTES: list[tuple[bytes, object]] = [
    *((f'{{"n":{text}}}'.encode(), None) for text in REFUSED),
    (b'{"n":1,"n":2}', 2),
    (b'{"n":null}', [None]),
    (b"\xef\xbb\xbf{}", None),
    (b'{"n":1}{"n":2}', None),
    (b'{"n":1}\n{"n":2}', None),
    (b'{"n":1} \n', 1),
    (b'{"s":"\x01"}', None),
    (b'{"s":"\xff"}', None),
    (b'{"unread":"\xff"}', None),
    (rb'{"s":"\ud800"}', None),
    (rb'{"unread":"\ud800","n":1}', 1),
    (b'{"unread":%s,"n":1}' % DEEP.encode(), 1),
    (b'{"unread":[%s],"n":1}' % DEEP.encode(), None),
    (b'{"n":-0}', 0),
    (b'{"unread":%s,"n":1}' % (b"9" * 1_000), 1),
    (b'{"unread":%s,"n":1}' % (b"9" * 1_001), None),
    (b'{"unread":0.%s,"n":1}' % (b"9" * 999), None),
]


@pytest.mark.parametrize(("value", "expected"), ODD_BYTES, ids=range(len(ODD_BYTES)))
def test_odd_bytes_are_taken_or_refused(value: bytes, expected: object) -> None:
    reader = reader_of(RecordForm.of(AppendFormat()), ROWS.columns, ())
    if expected is None:
        with pytest.raises(InputError) as caught:
            reader.record(None, value)
        assert caught.value.code in (Code.JSON_MALFORMED, Code.BAD_ENCODING, Code.VALUE_OUT_OF_RANGE)
        return
    change = reader.record(None, value).change
    assert change is not None
    assert change.row[0] == (None if expected == [None] else expected)


def framed(schema: str, row: str, end: str = "}") -> Record:
    """A row in Kafka Connect's frame."""
    return b'{"id":7,"name":"a"}', f'{{"schema":{schema},"payload":{row}{end}'.encode()


MILLIS, MICROS = (
    f'{{"fields":[{{"field":"at","type":"int64","name":"io.debezium.time.{name}"}}]}}'
    for name in ("Timestamp", "MicroTimestamp")
)
UNREADABLE = '{"fields":[{"field":"at","type":"int64","name":"io.debezium.time.Time"}]}'
FRAMES = [
    *(framed(MICROS, row) for row in ('{"at":1000000}', '{"at":null}', "null", "5", '{"at":1}{', "")),
    framed(MILLIS, '{"at":1000}'),
    framed(MICROS, '{"at":1000000}', ',"more":1}'),
    framed(MICROS, '{"at":1000000}', "} "),
    framed(MICROS, '{"at":1000000}', ""),
    framed(UNREADABLE, '{"at":1}'),
    framed(UNREADABLE, "{}"),
    framed(MICROS, '{"at":"\xff"}'),
    framed(MICROS, f'{{"unread":{DEEP}}}'),
    framed(MICROS, "null", "x"),
]


@pytest.mark.parametrize("first", FRAMES, ids=range(len(FRAMES)))
def test_a_frame_says_the_same_behind_any_other(first: Record) -> None:
    table = declare(
        {
            "name": "t",
            "columns": {"id": "bigint", "name": "string", "at": "timestamp"},
            "primary_key": ["id", "name"],
        }
    )
    found = [each for second in FRAMES for each in (first, second)]
    assert disagreements(UpsertFormat(), table, found) == []


def test_no_number_loses_a_digit() -> None:
    reader = reader_of(RecordForm.of(AppendFormat()), ROWS.columns, ())
    number = "12345678901234567890123456789.123456789"
    change = reader.record(None, f'{{"d":{number},"s":{{"a":[1.0,{number}]}}}}'.encode()).change
    assert change is not None
    assert str(change.row[2]) == number
    assert json.loads(change.row[3], parse_float=str) == {"a": ["1.0", number]}
