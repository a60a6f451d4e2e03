"""Records of outputs: their topic takes whatever a form makes of them, and a frame is as it is written, to the byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.avro.registered import SchemaIds
from schemas.errors import Code, InputError
from schemas.formats.outputs.formats import DebeziumOutput, UpsertOutput
from schemas.formats.outputs.lengths import MOST_MESSAGE_BYTES, record_bytes, topic_bytes
from schemas.formats.protocol import OutputFormat
from schemas.job import JobDefinition
from schemas.records import Barrier, BarrierKind, Change, Op, Row
from schemas.settings.limits import KAFKA_MESSAGE_BYTES, Limits
from schemas.table import TableSchema, declare
from streaming.sink.columns import SnapshotRows
from streaming.sink.output import Output
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.sent_records import sent_key, sent_reader, sent_row
from tests.kit.tables import table

FORMS: dict[str, dict[str, str]] = {
    "change": {},
    **{
        f"{form} {encoding}": {"format": form, "encoding": encoding}
        for form in ("upsert", "debezium")
        for encoding in ("json", "json-schema", "avro-registry")
    },
}
WIDE = {"id": "string", **{f"a_column_with_a_name_{number}": "decimal(38,20)" for number in range(1_500)}}
TABLES: dict[str, tuple[dict[str, str], list[Any]]] = {
    "control characters": ({"id": "string", "a": "string"}, ["\x01" * 150_000, "\x02" * 300_000]),
    "bytes": ({"id": "string", "a": "binary"}, ["k", b"\xff" * 400_000]),
    "quotes in the key alone": ({"id": "string", "a": "int"}, ['"' * 300_000, None]),
    "many columns without a value": (WIDE, ["k", *[None] * 1_500]),
}


def encoded(output: Output, table: TableSchema, row: Row) -> int:
    """Bytes of the longest record: of the row read, and of a change from the row to itself."""
    arrays = {
        column.name: pa.array([value], column.type.arrow)
        for column, value in zip(table.columns, row, strict=True)
    }
    barrier = Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0)
    rows = SnapshotRows(output=output, parts=np.zeros(1, np.int32), barrier=barrier, arrays=arrays)
    origins = output.origins(np.zeros(1, np.int32), np.zeros(1, np.int64), [barrier])
    update = pa.array([int(Op.UPDATE)], pa.int8())
    values = output.values.changes(update, rows.columns, rows.columns, origins)
    return max(rows.records.size(0), len(rows.records.keys[0].as_py()) + len(values[0].as_py()))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(("columns", "values"), TABLES.values(), ids=TABLES)
def test_an_output_takes_what_its_form_makes_of_a_record(
    form: dict[str, str], columns: dict[str, str], values: list[Any]
) -> None:
    table = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
    job = JobDefinition.declare({"name": "copy", "output": "copy", **form}, table)
    if job.format.framed:
        job = job.with_ids(SchemaIds(1, 2))
    row = tuple(values)
    key, change = KeyCodec(table.key_columns).encode(row[:1]), Change(Op.INSERT, None, row)
    upstream = len(key) + len(ChangeCodec(table.columns).encode(change))
    taken = record_bytes(topic_bytes(job, Limits(record_bytes=upstream)))
    assert encoded(Output(job, table), table, row) <= taken


def test_no_topic_is_made_for_less_than_kafka_s_default_or_more_than_a_producer_sends() -> None:
    table = declare({"name": "t", "columns": {"id": "string"}, "primary_key": ["id"]})
    change = JobDefinition.declare({"name": "copy", "output": "copy"}, table)
    event = JobDefinition.declare({"name": "copy", "output": "copy", "format": "debezium"}, table)
    assert topic_bytes(change, Limits(record_bytes=1)) == KAFKA_MESSAGE_BYTES
    assert topic_bytes(change, Limits()) < topic_bytes(event, Limits()) < MOST_MESSAGE_BYTES
    assert topic_bytes(event, Limits(record_bytes=64 << 20)) == MOST_MESSAGE_BYTES


TABLE = table()
ROW: Row = (7, 1, "x")
FORMATS = [UpsertOutput(encoding="json-schema"), DebeziumOutput(encoding="json-schema")]


@pytest.mark.parametrize("format_", FORMATS, ids=lambda each: each.format)
@pytest.mark.parametrize(
    ("shown", "instead", "code"),
    [
        (b'"type":"int64"', b'"type":"int32"', Code.JSON_MALFORMED),
        (b'{"schema"', b'{ "schema"', Code.JSON_MALFORMED),
        (b'"payload"', b'"load"', Code.JSON_MALFORMED),
        (b'"id":7', b'"id":70000000000000000000', Code.VALUE_OUT_OF_RANGE),
        (b'"v":"x"', b'"v":"x","w":1', Code.JSON_MALFORMED),
    ],
)
def test_another_frame_or_row_is_refused(
    format_: OutputFormat, shown: bytes, instead: bytes, code: Code
) -> None:
    reader = sent_reader(format_, TABLE.columns, TABLE.key_columns)
    key, value = sent_key(format_, TABLE.key_columns, (7,)), sent_row(format_, TABLE.columns, ROW)
    assert value is not None
    change = reader.record(key, value).change
    assert change is not None
    assert change.after == ROW
    assert shown in value
    with pytest.raises(InputError) as caught:
        reader.record(key, value.replace(shown, instead))
    assert caught.value.code is code
    if shown in key:
        with pytest.raises(InputError):
            reader.key(key.replace(shown, instead))
