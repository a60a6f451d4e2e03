"""Outputs in Avro by a registry, against fastavro with the schemas as they are registered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.avro.output_schemas import namespace_of, text_of
from schemas.avro.registered import FRAME_BYTES, KnownSchemas, SchemaIds, WriterSchema, frame
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs.formats import DebeziumOutput, UpsertOutput
from schemas.formats.protocol import Origins, OutputFormat
from schemas.formats.upsert import UpsertFormat
from schemas.records import Barrier, BarrierKind, Op, Row
from schemas.table import declare
from schemas.topics import is_topic_name
from tests.kit.columns import columns_of
from tests.kit.single_records import single_records
from tests.kit.values import TYPES, examples, rows_of

IDS = SchemaIds(key=1, value=2**32 - 1)
TABLE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "Value": "date"} | {f"c{n}": str(each) for n, each in enumerate(TYPES)},
        "primary_key": ["Value", "id"],
    }
)
BARRIERS = [Barrier(n << 16, (n - 1) << 16, BarrierKind.BARRIER, 1, 1_700_000_000_000 * n) for n in (1, 2, 3)]
LETTERS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d"}
MOST_PARTS = 32_768


def read(data: bytes, schema: Mapping[str, Any]) -> Any:
    """By the schema as a reader gets it."""
    stream = BytesIO(data[FRAME_BYTES:])
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(text_of(schema))))
    assert stream.read() == b""
    return record


def named(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else dict(zip(TABLE.column_names, row, strict=True))


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[Op], list[Row], list[Row], list[int], list[int]]:
    """Ops with rows before and after, parts, and intervals."""
    count = draw(st.integers(0, 6))
    rows = rows_of(TABLE.columns)
    ops = draw(st.lists(st.sampled_from(Op), min_size=count, max_size=count))
    halves = [draw(st.lists(rows, min_size=count, max_size=count)) for _ in range(2)]
    parts = st.integers(0, MOST_PARTS - 1) | st.just(3)
    places = draw(st.lists(parts, min_size=count, max_size=count))
    intervals = sorted(draw(st.lists(st.integers(0, len(BARRIERS) - 1), min_size=count, max_size=count)))
    return ops, halves[0], halves[1], places, intervals


def encoded(format_: OutputFormat, found: Any) -> list[bytes | None]:
    ops, before, after, parts, intervals = found
    origins = Origins("copy", "t", np.array(parts, np.int32), np.array(intervals, np.int64), BARRIERS)
    halves = columns_of(TABLE.columns, before), columns_of(TABLE.columns, after)
    values = format_.values(TABLE.columns).changes(pa.array(ops, pa.int8()), *halves, origins)
    found_values: list[bytes | None] = values.to_pylist()
    return found_values


@settings(max_examples=examples(30))
@given(found=changes())
def test_fastavro_reads_events_with_their_source_by_the_registered_schema(found: Any) -> None:
    format_ = DebeziumOutput(encoding="avro-registry").with_ids(IDS)
    schema = format_.schemas(TABLE.columns, TABLE.key_columns, "shop.orders")["value"]
    for value, op, before, after, part, interval in zip(encoded(format_, found), *found, strict=True):
        assert value is not None
        assert value.startswith(frame(IDS.value))
        event, barrier = read(value, schema), BARRIERS[interval]
        assert event["source"] == {
            "version": event["source"]["version"],
            "connector": "arrangement-backfill",
            "name": "copy",
            "ts_ms": barrier.injected_at_ms,
            "snapshot": "false",
            "db": "",
            "table": "t",
            "epoch": str(barrier.curr),
            "vnode": part,
        }
        assert (event["op"], event["ts_ms"]) == (LETTERS[op], barrier.injected_at_ms)
        rows = named(None if op is Op.INSERT else before), named(None if op is Op.DELETE else after)
        assert repr((event["before"], event["after"])) == repr(rows)  # a NaN is no NaN's equal


@settings(max_examples=examples(30))
@given(found=changes())
def test_fastavro_reads_rows_and_keys_by_the_registered_schemas(found: Any) -> None:
    format_ = UpsertOutput(encoding="avro-registry").with_ids(IDS)
    schemas = format_.schemas(TABLE.columns, TABLE.key_columns, "shop.orders")
    ops, _, after, _, _ = found
    for value, op, row in zip(encoded(format_, found), ops, after, strict=True):
        assert (value is None) == (op is Op.DELETE)
        assert value is None or value.startswith(frame(IDS.value))
        assert value is None or repr(read(value, schemas["value"])) == repr(named(row))
    keys = [TABLE.key_of(row) for row in after]
    data = format_.keys(TABLE.key_columns)(columns_of(TABLE.key_columns, list(keys))).to_pylist()
    found_keys = [tuple(read(each, schemas["key"]).values()) for each in data]
    assert found_keys == keys
    assert all(each.startswith(frame(IDS.key)) for each in data)


@settings(max_examples=examples(20))
@given(found=changes())
def test_an_upstream_of_the_same_format_has_the_same_rows(found: Any) -> None:
    for written, read_as in ((UpsertOutput, UpsertFormat), (DebeziumOutput, DebeziumFormat)):
        format_ = written(encoding="avro-registry").with_ids(IDS)
        schemas = format_.schemas(TABLE.columns, TABLE.key_columns, "shop.orders")
        known = (WriterSchema(getattr(IDS, half), text_of(schema)) for half, schema in schemas.items())
        upstream = read_as(encoding="avro-registry").with_schemas(KnownSchemas(tuple(known)))
        for half, schema in schemas.items():
            writer = WriterSchema(getattr(IDS, half), text_of(schema))
            assert upstream.incompatibility_of_schema(half, writer, TABLE) is None
        rows, ops = single_records(upstream, TABLE.columns, TABLE.key_columns), found[0]
        now = [old if op is Op.DELETE else new for op, old, new in zip(*found[:3], strict=True)]
        keys = format_.keys(TABLE.key_columns)(
            columns_of(TABLE.key_columns, [TABLE.key_of(row) for row in now])
        )
        change = encoded(format_, (ops, found[1], now, *found[3:]))
        for key, value, op, row in zip(keys.to_pylist(), change, ops, now, strict=True):
            read_change = rows.read_record(key, value).change
            assert read_change is not None
            assert (read_change.op is Op.DELETE) == (op is Op.DELETE)
            assert op is Op.DELETE or repr(read_change.after) == repr(row)


@given(topic=st.from_regex(r"[A-Za-z0-9._-]{1,60}", fullmatch=True).filter(is_topic_name))
@example(topic="a..b.")
@example(topic="2026.01-orders")
def test_every_topic_and_column_has_names_that_avro_takes(topic: str) -> None:
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", namespace_of(topic))
    for format_ in (UpsertOutput(encoding="avro-registry"), DebeziumOutput(encoding="avro-registry")):
        for schema in format_.schemas(TABLE.columns, TABLE.key_columns, topic).values():
            fastavro.parse_schema(json.loads(text_of(schema)))
