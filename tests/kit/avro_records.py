"""Records by schemas of a registry for Hypothesis: schemas that a table's rows may come by, and bytes of all kinds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
from hypothesis import strategies as st

from schemas.avro.registered import WriterSchema, frame
from schemas.table import Column, TableSchema
from schemas.types import ColumnType, TypeName
from tests.kit.values import integers_around_powers_of_two

Record = tuple[bytes | None, bytes | None]
Schema = Any
INTS = integers_around_powers_of_two(-(2**31), 2**31 - 1)
LONGS = integers_around_powers_of_two(-(2**63), 2**63 - 1)
_FIRST, _LAST = -719_162, 2_932_896
_DAYS = st.sampled_from([_FIRST, _LAST, 0, -1, 20_000]) | st.integers(_FIRST, _LAST)


def _seconds(per_second: int) -> st.SearchStrategy[int]:
    first, last = _FIRST * 86_400 * per_second, (_LAST + 1) * 86_400 * per_second - 1
    return st.sampled_from([first, last, 0, -1]) | st.integers(first, last)


def _nanos() -> st.SearchStrategy[int]:
    return st.integers(-(2**63) // 1_000 + 1, 2**63 // 1_000 - 1).map(lambda micros: micros * 1_000)


def _logical(avro: str, meaning: str, **more: object) -> Schema:
    return {"type": avro, "logicalType": meaning, **more}


OWN_SCALE = {
    "type": "record",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}


def _unscaled(number: int) -> bytes:
    return number.to_bytes(max(1, (number.bit_length() + 8) // 8), "big", signed=True)


def _decimals(kind: ColumnType) -> list[tuple[Schema, st.SearchStrategy[Any]]]:
    most = 10 ** (kind.precision or 0) - 1
    numbers = integers_around_powers_of_two(-most, most)
    sizes = [size for size in (4, 8, 9, 17) if most < 2 ** (8 * size - 1)]
    found = [(_logical("bytes", "decimal", precision=64, scale=kind.scale), numbers.map(_unscaled))]
    for size in sizes:
        digits = len(str(2 ** (8 * size - 1) - 1)) - 1
        if digits >= (kind.precision or 0):
            schema = _logical(
                "fixed", "decimal", precision=digits, scale=kind.scale, name=f"F{size}", size=size
            )
            found.append((schema, numbers.map(lambda n, size=size: n.to_bytes(size, "big", signed=True))))  # type: ignore[misc]
    if kind.scale:
        cut = numbers.filter(lambda n: abs(n) * 10 <= most)
        wider = _logical("bytes", "decimal", precision=38, scale=kind.scale - 1)
        found.append((wider, cut.map(_unscaled)))
    own = st.fixed_dictionaries({"scale": st.just(kind.scale), "value": numbers.map(_unscaled)})
    whole = (kind.precision or 0) - (kind.scale or 0)
    if whole > 2:
        hundreds = integers_around_powers_of_two(-(10 ** (whole - 2)) + 1, 10 ** (whole - 2) - 1).map(
            _unscaled
        )
        found.append((_logical("bytes", "decimal", precision=38, scale=-2), hundreds))
        own |= st.fixed_dictionaries({"scale": st.just(-2), "value": hundreds})
    text = numbers.map(lambda n: f"{'-' if n < 0 else ''}{abs(n)}e-{kind.scale}")
    return [*found, ("string", text), (OWN_SCALE, own)]


def fields_for(kind: ColumnType) -> list[tuple[Schema, st.SearchStrategy[Any]]]:
    """Schemas that a writer may have for a column, with values that fit, as Avro writes them without logical types."""
    enum = {"type": "enum", "name": "Mood", "symbols": ["sad", "ok", "happy"]}
    day, at = "2026-01-31", "2026-01-31T12:00:00.123456+01:00"
    table: dict[TypeName, list[tuple[Schema, st.SearchStrategy[Any]]]] = {
        TypeName.BOOLEAN: [("boolean", st.booleans())],
        TypeName.INT: [("int", INTS), (_logical("int", "time-millis"), INTS)],
        TypeName.BIGINT: [("int", INTS), ("long", LONGS), (_logical("long", "time-micros"), LONGS)],
        TypeName.FLOAT: [("float", st.floats(width=32)), ("int", INTS), ("long", LONGS)],
        TypeName.DOUBLE: [
            ("double", st.floats()),
            ("float", st.floats(width=32)),
            ("int", INTS),
            ("long", LONGS),
        ],
        TypeName.STRING: [
            ("string", st.text(max_size=40)),
            ({"type": "string", "avro.java.string": "String"}, st.text(max_size=4)),
            (_logical("string", "uuid"), st.uuids().map(str)),
            ("bytes", st.text(max_size=9).map(str.encode)),
            (enum, st.sampled_from(enum["symbols"])),
        ],
        TypeName.BINARY: [
            ("bytes", st.binary(max_size=40)),
            ("string", st.text(max_size=9)),
            ({"type": "fixed", "name": "Five", "size": 5}, st.binary(min_size=5, max_size=5)),
        ],
        TypeName.DATE: [
            (_logical("int", "date"), _DAYS),
            ({"type": "int", "connect.name": "io.debezium.time.Date"}, _DAYS),
            ("string", st.just(day)),
        ],
        TypeName.TIMESTAMP: [
            (_logical("long", "timestamp-micros"), _seconds(1_000_000)),
            (_logical("long", "timestamp-millis"), _seconds(1_000)),
            (_logical("long", "local-timestamp-micros"), _seconds(1_000_000)),
            (_logical("long", "timestamp-nanos"), _nanos()),
            ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, _seconds(1_000_000)),
            ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, st.just(at)),
        ],
    }
    return _decimals(kind) if kind.name is TypeName.DECIMAL else table[kind.name]


OUTSIDE = {
    "int": LONGS,
    "long": LONGS,
    "bytes": st.binary(max_size=20),
    "record": st.fixed_dictionaries(
        {
            "scale": st.sampled_from([-1_000, -999, -39, -38, -2, -1, 0, 1, 3, 38, 39, 999, 1_000]),
            "value": st.sampled_from([b"", b"\x00", b"\x64", b"\xff\x38"]) | st.binary(max_size=20),
        }
    ),
    "string": st.sampled_from(["", "2026-02-30", "1e999", "0x1", "1.5", "12", "2026-01-31", "\x00", "💡"]),
}
"""Values of the same Avro type that may not fit; an int of more than 32 bits among them."""

_INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string", "double"]}],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "left", "type": ["null", "Tree"]},
        {"name": "all", "type": {"type": "array", "items": "Tree"}},
    ],
}
_TREES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({"left": None, "all": []}),
    lambda trees: st.fixed_dictionaries({"left": st.none() | trees, "all": st.lists(trees, max_size=2)}),
    max_leaves=6,
)
EXTRAS: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    (["int", "string", "null"], INTS | st.text(max_size=5) | st.none()),
    ({"type": "array", "items": ["null", "int"]}, st.lists(st.none() | INTS, max_size=4)),
    (
        {"type": "map", "values": "string"},
        st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    ),
    (_INNER, st.fixed_dictionaries({"a": INTS, "b": st.none() | st.text(max_size=5) | st.floats()})),
    (
        {"type": "array", "items": {**_INNER, "name": "Other"}},
        st.lists(st.fixed_dictionaries({"a": INTS, "b": st.none()}), max_size=3),
    ),
    ({"type": "enum", "name": "Colour", "symbols": ["red", "green"]}, st.sampled_from(["red", "green"])),
    (_logical("bytes", "decimal", precision=5, scale=2), st.binary(min_size=1, max_size=3)),
    (_logical("bytes", "decimal", precision=64, scale=127), st.binary(max_size=3)),
    (_logical("string", "date"), st.text(max_size=3)),
    (TREE, _TREES),
    ("null", st.none()),
]


def bare(schema: Schema) -> Schema:
    """Without logical types, so that fastavro writes what it is given."""
    match schema:
        case list():
            return [bare(each) for each in schema]
        case {"type": "record"}:
            return {**schema, "fields": [{**each, "type": bare(each["type"])} for each in schema["fields"]]}
        case dict():
            inner = {
                key: value
                for key, value in schema.items()
                if key not in ("logicalType", "precision", "scale")
            }
            return {key: bare(value) if key in ("items", "values") else value for key, value in inner.items()}
    return schema


def encoded(schema: Schema, value: Any) -> bytes:
    """A value in Avro. An int has the same bytes as a long, so one that is too long is written all the same."""
    out = BytesIO()
    wide = json.loads(json.dumps(bare(schema)).replace('"int"', '"long"'))
    fastavro.schemaless_writer(out, fastavro.parse_schema(wide), value)
    return out.getvalue()


def framed(schema_id: int, schema: Schema, value: Any) -> bytes:
    """A value in Avro behind the id of its schema."""
    return frame(schema_id) + encoded(schema, value)


@dataclass(frozen=True)
class Writer:
    """A schema with the values of its fields, by name."""

    schema: WriterSchema
    fields: dict[str, tuple[Schema, st.SearchStrategy[Any]]]
    avro: Schema

    def record(self, draw: st.DrawFn, fixed: dict[str, Any]) -> bytes:
        """Of values that are given or drawn, with the frame in front."""
        row = {
            name: fixed[name] if name in fixed else draw(values) for name, (_, values) in self.fields.items()
        }
        return framed(self.schema.id, self.avro, row)


def _renamed(schema: Schema, number: int) -> Schema:
    """With a number behind the names of types, of which a schema may define each once."""
    match schema:
        case list():
            return [_renamed(each, number) for each in schema]
        case dict():
            inner = {key: _renamed(schema[key], number) for key in ("items", "values") if key in schema}
            is_free = "name" in schema and schema not in (OWN_SCALE, TREE)  # which are known by their names
            name = {"name": f"{schema['name']}{number}"} if is_free else {}
            return {**schema, **inner, **name}
    return schema


def _named_once(schema: Schema, seen: set[str]) -> Schema:
    """A schema with each named type defined where it comes first, and by its name from there on."""
    match schema:
        case list():
            return [_named_once(branch, seen) for branch in schema]
        case {"type": "record" | "fixed", "name": name}:
            if name in seen:
                return name
            seen.add(name)
    if isinstance(schema, dict) and schema["type"] == "record":
        inner = [{**field, "type": _named_once(field["type"], seen)} for field in schema["fields"]]
        return {**schema, "fields": inner}
    return schema


def _of_fields(number: int, fields: dict[str, tuple[Schema, st.SearchStrategy[Any]]]) -> Writer:
    avro_fields = [{"name": name, "type": schema} for name, (schema, _) in fields.items()]
    record = {"type": "record", "name": "Row", "namespace": "shop.orders", "fields": avro_fields}
    avro = _named_once(record, set())
    return Writer(WriterSchema(number, json.dumps(avro)), fields, avro)


def row_writer(draw: st.DrawFn, number: int, columns: Sequence[Column], *, odd: bool, whole: bool) -> Writer:
    fields: dict[str, tuple[Schema, st.SearchStrategy[Any]]] = {}

    def add(name: str, choice: tuple[Schema, st.SearchStrategy[Any]], form: int) -> None:
        schema, values = choice
        schema = _renamed(schema, len(fields))
        if isinstance(schema, str | dict) and schema != "null":
            values = values if not form else st.none() | values
            schema = [schema, ["null", schema], [schema, "null"]][form]
        fields[name] = (schema, values)

    for column in draw(st.permutations(columns)):
        if not whole and not draw(st.integers(0, 5)):
            continue
        choice = draw(st.sampled_from(fields_for(column.type)))
        avro = choice[0] if isinstance(choice[0], str) else choice[0]["type"]
        if odd and avro in OUTSIDE and not draw(st.integers(0, 9)):
            choice = (choice[0], choice[1] | OUTSIDE[avro])
        if odd and not draw(st.integers(0, 60)):
            choice = draw(st.sampled_from(EXTRAS))
        is_optional = column.nullable or (odd and not draw(st.integers(0, 9)))
        add(column.name, choice, draw(st.integers(0, 2)) if is_optional else 0)
    for extra in range(draw(st.integers(0, 2)) if not whole else 0):
        add(f"extra{extra}", draw(st.sampled_from(EXTRAS)), draw(st.integers(0, 2)))
    return _of_fields(number, fields)


def key_writer(draw: st.DrawFn, number: int, columns: Sequence[Column], form: str, odd: bool) -> Writer:
    if form == "record":
        return row_writer(draw, number, columns, odd=odd, whole=True)
    [column] = columns
    schema, values = draw(st.sampled_from(fields_for(column.type)))
    return Writer(WriterSchema(number, json.dumps(schema)), {column.name: (schema, values)}, schema)


def broken(draw: st.DrawFn, data: bytes) -> bytes:
    match draw(st.integers(0, 15)):
        case 0:
            return data[: draw(st.integers(0, len(data)))]
        case 1:
            return data + draw(st.sampled_from([b"\x00", b"\x02", bytes.fromhex("e1a75c0d93b62f48"), data]))
        case 2 if data:
            at = draw(st.integers(0, len(data) - 1))
            return data[:at] + draw(st.binary(min_size=1, max_size=1)) + data[at + 1 :]
        case 3:
            return frame(draw(st.sampled_from([0, 1, 99, 2**32 - 1]))) + data[5:]
        case _:
            return data


def batches(
    table: TableSchema, *, key: str, odd: bool, count: int = 60
) -> st.SearchStrategy[tuple[tuple[WriterSchema, ...], list[Record]]]:
    """Schemas of several writers, and records by them. `key`: `record` or `avro`."""

    @st.composite
    def build(draw: st.DrawFn) -> tuple[tuple[WriterSchema, ...], list[Record]]:
        keys = [key_writer(draw, 10 + n, table.key_columns, key, odd) for n in range(2)]
        writers = [row_writer(draw, 20 + n, table.columns, odd=odd, whole=False) for n in range(3)]
        kept = 1 if odd else 0
        writers[kept:] = [without(writer, table.primary_key) for writer in writers[kept:]]
        found: list[Record] = []
        for _ in range(count):
            writer, of_key = draw(st.sampled_from(writers)), draw(st.sampled_from(keys))
            cells = {name: draw(values) for name, (_, values) in of_key.fields.items()}
            data = frame(of_key.schema.id) + encoded(
                of_key.avro, cells if key == "record" else cells[table.primary_key[0]]
            )
            value: bytes | None = writer.record(draw, {})
            if not draw(st.integers(0, 9)):
                value = draw(st.sampled_from([None, b""]))
            elif odd and value is not None:
                value = broken(draw, value)
            if odd and not draw(st.integers(0, 3)):
                data = broken(draw, data)
            found.append((data, value))
        return tuple(each.schema for each in (*keys, *writers)), found

    return build()


def without(writer: Writer, names: Sequence[str]) -> Writer:
    """The writer without some fields: random ones would not be those of the key."""
    fields = {name: field for name, field in writer.fields.items() if name not in names}
    return _of_fields(writer.schema.id, fields)
