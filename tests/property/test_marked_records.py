"""Lists of every form are read by columns, and one record that these mark costs its neighbours nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.codec.avro_reader import AvroReader
from schemas.codec.envelopes import ChangeDecoder
from schemas.errors import InputError
from schemas.formats.change import ChangeFormat
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.records import Change, Op
from schemas.table import TableSchema, declare
from tests.kit.avro_codec import ChangeCodec
from tests.kit.avro_records import encoded
from tests.kit.two_ways import Record, as_text, decoded, fast, one_by_one
from tests.kit.values import examples

TABLE = declare({"name": "t", "columns": {"id": "bigint", "v": "string"}, "primary_key": ["id"]})
ITEMS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "texts": ("string", st.text(max_size=3)),
    "reals": ("float", st.floats(width=32)),
    "fixed": ({"type": "fixed", "name": "Three", "size": 3}, st.binary(min_size=3, max_size=3)),
    "lists": ({"type": "array", "items": "long"}, st.lists(st.integers(-9, 9_999), max_size=3)),
    "unions": (["null", "long", "boolean"], st.none() | st.integers(0, 9) | st.booleans()),
}


def blocks(items: Sequence[bytes], sizes: Sequence[int]) -> bytes:
    """Items in blocks of these sizes, negative ones with their bytes before them; the rest is one block."""
    data, rest = b"", list(items)
    for size in (*sizes, len(items)):
        part, rest = rest[: abs(size)], rest[abs(size) :]
        if part:
            body = b"".join(part)
            length = encoded("long", len(body)) if size < 0 else b""
            data += encoded("long", -len(part) if size < 0 else len(part)) + length + body
    return data + b"\x00"


def upserts(item: Any, lists: Sequence[bytes], kind: str = "array") -> tuple[UpstreamFormat, list[Record]]:
    inner = {"type": kind, "items" if kind == "array" else "values": item}
    fields = [{"name": "l", "type": inner}, {"name": "v", "type": "string"}]
    row = {"type": "record", "name": "R", "fields": fields}
    schemas = KnownSchemas((WriterSchema(1, '"long"'), WriterSchema(2, json.dumps(row))))
    format_ = UpsertFormat(encoding="avro-registry", key="avro").with_schemas(schemas)
    values = [frame(2) + each + encoded("string", f"row {at}") for at, each in enumerate(lists)]
    return format_, [(frame(1) + encoded("long", at), value) for at, value in enumerate(values)]


@pytest.mark.parametrize("kind", ["array", "map"])
@pytest.mark.parametrize("name", ITEMS)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_lists_and_maps_in_any_blocks_are_passed_over_by_columns(
    kind: str, name: str, data: st.DataObject
) -> None:
    item, values = ITEMS[name]
    name_of = encoded("string", "k") if kind == "map" else b""
    drawn = data.draw(st.lists(st.lists(values, max_size=8), min_size=1, max_size=4))
    sizes = data.draw(st.lists(st.integers(-3, 3), max_size=4))
    lists = [blocks([name_of + encoded(item, each) for each in found], sizes) for found in drawn]
    format_, records = upserts(item, lists, kind)
    assert as_text(fast(format_, TABLE, records)) == as_text(one_by_one(format_, TABLE, records))


def test_lists_of_all_records_are_read_by_columns_however_long_they_are_and_one_long_list_alone() -> None:
    items = [encoded("string", "x")] * 200
    format_, records = upserts("string", [blocks(items, [7, -50])] * 40)
    assert len(fast(format_, TABLE, records)) == 40
    format_, records = upserts("string", [blocks(items if at == 3 else items[:2], []) for at in range(40)])
    assert read_alone(format_, TABLE, records) == 1


def test_a_list_that_claims_more_than_there_is_marks_its_record_alone() -> None:
    claims = [encoded("long", count) for count in (1, 100, 2**40, -(2**40), 2**62, -(2**63))]
    reals = [{"name": "a", "type": "float"}, {"name": "b", "type": "boolean"}]
    record = {"type": "record", "name": "Reals", "fields": reals}
    for item in ("string", "float", "boolean", "null", {"type": "fixed", "name": "F", "size": 3}, record):
        format_, records = upserts(item, [b"\x00", *claims, b"\x00"])
        found = decoded(format_, TABLE, records)
        assert [isinstance(each, InputError) for each in found[:1] + found[-1:]] == [False, False]
        assert all(isinstance(each, InputError) for each in found[2:-1])


def test_a_block_whose_size_is_not_that_of_its_items_is_read_by_the_fallback() -> None:
    items = encoded("string", "x") + encoded("string", "y")
    sizes = [b"\x03" + encoded("long", size) + items + b"\x00" for size in (4, 3, 5, 2**62, -1)]
    format_, records = upserts("string", sizes)
    assert read_alone(format_, TABLE, records) == 4
    assert as_text(fast(format_, TABLE, records[:1])) == as_text(one_by_one(format_, TABLE, records[:1]))


def read_alone(format_: UpstreamFormat, table: TableSchema, records: Sequence[Record]) -> int:
    """The number of keys and values of a block that the fallback reads."""
    with (
        patch.object(AvroReader, "_record", autospec=True, side_effect=AvroReader._record) as registered,
        patch.object(ChangeDecoder, "_change", autospec=True, side_effect=ChangeDecoder._change) as changes,
    ):
        decoded(format_, table, records)
    return int(registered.call_count + changes.call_count)


@pytest.mark.parametrize("place", [0, 500, 999])
def test_one_invalid_record_is_the_only_one_that_the_fallback_reads(place: int) -> None:
    format_, records = upserts("string", [b"\x00"] * 1_000)
    key, value = records[place]
    assert value is not None
    records[place] = (key, value[:-1])
    assert read_alone(format_, TABLE, records) == 1
    codec = ChangeCodec(TABLE.columns)
    values = [codec.encode(Change(Op.INSERT, None, (at, "x"))) for at in range(1_000)]
    values[place] += b"\x00"
    assert read_alone(ChangeFormat(), TABLE, [(b"", each) for each in values]) == 1
