"""Avro schemas as writers register them, with the definition of each type in place of its name.

Registries hold schemas that strict parsers refuse although the bytes are sound: defaults of another type than their
field, decimals of impossible digits, symbols with dashes, one name defined twice. Only what decides about the bytes is
checked here. A definition is one object wherever it is used, and one that contains itself is a cycle. Values that no
column has are passed over: their bytes are checked, and nothing is made of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from schemas.errors import Code
from schemas.types import MAX_DECIMAL_PRECISION
from streaming.reading.values.avro_bytes import MAX_VALUE_BYTES, AvroCursor, FieldReader
from streaming.reading.values.invalid import InvalidRecordError

AvroSchema = Any
_NESTED = 100
_PLAIN = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
RECORDS = ("record", "error")
INSTANT_UNITS = {"timestamp-millis": 1_000_000, "timestamp-micros": 1_000, "timestamp-nanos": 1}
"""Nanoseconds."""
_TYPES_OF: Mapping[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    **dict.fromkeys(("time-micros", "time-nanos", *INSTANT_UNITS), ("long",)),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
}
"""The types that each logical type of Avro is for."""
BY_CONNECT = {
    "org.apache.kafka.connect.data.Decimal": "decimal",
    "io.debezium.time.Date": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.NanoTimestamp": "timestamp-nanos",
}
"""Kafka Connect's converters name some types by `connect.name`, beside `logicalType` or in its place."""
_SCALE = re.compile(r"-?[0-9]{1,3}")


class RegisteredSchema(Protocol):
    """A writer's schema in a registry: its text, and those of the schemas that it refers to, each after its own."""

    @property
    def text(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def references(self) -> Sequence[str]: ...


class SchemaLookup(Protocol):
    """A schema registry."""

    def get(self, schema_id: int, /) -> RegisteredSchema | None:
        """The schema of an id, None for an id without one. Raises what asking for it raises."""


class IncompatibleSchemaError(InvalidRecordError):
    """The reason why no record of a schema can be read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, Code.SCHEMA_INCOMPATIBLE)


def resolved_schema(schema: RegisteredSchema) -> AvroSchema:
    """A schema of a registry as JSON has it, without names of types. Raises: IncompatibleSchemaError."""
    if schema.kind != "AVRO":
        raise IncompatibleSchemaError(f"a schema of type {schema.kind}, not AVRO")
    named: dict[str, Any] = {}
    try:
        for text in schema.references:
            _resolved(json.loads(text), named, "", 0)
        return _resolved(json.loads(schema.text), named, "", 0)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, IncompatibleSchemaError):
            raise
        raise no_avro(type(error).__name__) from None


def no_avro(reason: str) -> IncompatibleSchemaError:
    """The error for what is no schema."""
    return IncompatibleSchemaError(f"a schema that is no Avro ({reason})")


def _resolved(schema: Any, named: dict[str, Any], namespace: str, depth: int) -> AvroSchema:
    """`named` has the types that were defined before it; a name stands for the last of its definitions."""
    if depth > _NESTED:
        raise no_avro(f"more than {_NESTED} types within each other")
    depth += 1
    match schema:
        case str() if schema in _PLAIN:
            return schema
        case str():
            if (found := named.get(_full_name(schema, namespace), named.get(schema))) is None:
                raise no_avro(f"type {schema} is not defined")
            return found
        case list():
            return [_resolved(branch, named, namespace, depth) for branch in schema]
        case {"type": "record" | "error" | "enum" | "fixed"}:
            return _defined(schema, named, namespace, depth)
        case {"type": "array", "items": inner}:
            return {**schema, "items": _resolved(inner, named, namespace, depth)}
        case {"type": "map", "values": inner}:
            return {**schema, "values": _resolved(inner, named, namespace, depth)}
        case {"type": str() | dict() | list() as inner}:
            return {**schema, "type": _resolved(inner, named, namespace, depth)}
    raise no_avro(f"{type(schema).__name__} where a type is due")


def _defined(schema: Mapping[str, Any], named: dict[str, Any], namespace: str, depth: int) -> dict[str, Any]:
    own = schema.get("namespace", namespace)
    name = _full_name(_of_type(schema, "name", str), own if isinstance(own, str) else namespace)
    made = named[name] = {**schema, "name": name}
    if schema["type"] in RECORDS:
        inner = name.rpartition(".")[0]
        fields = [each if isinstance(each, dict) else {} for each in _of_type(schema, "fields", list)]
        if any("type" not in each for each in fields):
            raise no_avro("a field without a type")
        made["fields"] = [
            {
                **each,
                "type": _resolved(each["type"], named, inner, depth),
                "name": _of_type(each, "name", str),
            }
            for each in fields
        ]
    elif schema["type"] == "enum":
        _of_type(schema, "symbols", list)
    elif type(size := schema.get("size")) is not int or not 0 <= size <= MAX_VALUE_BYTES:
        raise IncompatibleSchemaError(f"a fixed of {size} bytes")
    return made


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _of_type(schema: Mapping[str, Any], key: str, kind: type) -> Any:
    if not isinstance(found := schema.get(key), kind):
        raise no_avro(f"{key} is no {kind.__name__}")
    return found


def unwrapped(schema: AvroSchema) -> Mapping[str, Any]:
    """A schema as a mapping whose `type` is a name."""
    while isinstance(schema, dict) and isinstance(schema["type"], dict):
        schema = schema["type"]
    return schema if isinstance(schema, dict) else {"type": schema}


def fields_of(schema: AvroSchema) -> dict[str, AvroSchema]:
    """The fields of a record, by name. Raises: IncompatibleSchemaError for what is none."""
    if not isinstance(schema, dict) or schema["type"] not in RECORDS:
        raise IncompatibleSchemaError("a schema that is no record")
    fields = {each["name"]: each["type"] for each in schema["fields"]}
    if len(fields) < len(schema["fields"]):
        raise no_avro("two fields of one name")
    return fields


def branches_of(field: AvroSchema) -> list[Mapping[str, Any]]:
    """The types that a field may have, but null."""
    branches = [unwrapped(each) for each in (field if isinstance(field, list) else [field])]
    return [branch for branch in branches if branch["type"] != "null"]


def meaning_of_type(kind: Mapping[str, Any]) -> str | None:
    """Avro's name for what values of a type stand for; None for nothing that it knows.

    Raises: IncompatibleSchemaError for one that makes no sense where it stands.
    """
    avro, named = kind["type"], kind.get("logicalType")
    if not isinstance(named, str | None):
        raise IncompatibleSchemaError(f"{avro} with a logical type that is no text")
    # Without a zone they are taken for UTC, as everything is here.
    logical, by_connect = (named or "").removeprefix("local-"), BY_CONNECT.get(str(kind.get("connect.name")))
    known = {name for name in (logical, by_connect) if name in _TYPES_OF}
    if len(known) > 1:
        raise IncompatibleSchemaError(f"{avro} with two meanings, {logical} and {by_connect}")
    for name in known:
        if avro not in _TYPES_OF[str(name)]:
            raise IncompatibleSchemaError(f"{avro} with the meaning {name}")
        return name
    return None


def has_own_scale(kind: Mapping[str, Any]) -> bool:
    """True for Debezium's record of a decimal with its own scale, which PostgreSQL's `numeric` is."""
    fields = [(field["name"], unwrapped(field["type"])["type"]) for field in kind["fields"]]
    return kind["name"] == "io.debezium.data.VariableScaleDecimal" and fields == [
        ("scale", "int"),
        ("value", "bytes"),
    ]


def digits_in(size: int) -> int:
    """The number of decimal digits that always fit in a signed number of `size` bytes."""
    return int(math.log10(2) * (8 * max(1, size) - 1))


def scale_of(kind: Mapping[str, Any]) -> int:
    """The scale of a decimal in `bytes` or `fixed`. Raises: IncompatibleSchemaError where it has no sense."""
    precision, scale = kind.get("precision", MAX_DECIMAL_PRECISION), kind.get("scale")
    parameters = kind.get("connect.parameters")
    by_connect = parameters.get("scale") if isinstance(parameters, dict) else None
    if scale is None and isinstance(by_connect, str) and _SCALE.fullmatch(by_connect):
        scale = int(by_connect)
    if scale is None and "logicalType" in kind:
        scale = 0
    if (
        type(precision) is int
        and type(scale) is int
        and by_connect in (None, str(scale))
        and abs(scale) <= MAX_DECIMAL_PRECISION
        and max(scale, 1) <= precision
        and (kind["type"] == "bytes" or "precision" not in kind or precision <= digits_in(kind["size"]))
    ):
        return scale
    found = f"scale {kind.get('scale', by_connect)}, precision {kind.get('precision')}"
    raise IncompatibleSchemaError(f"{kind['type']} with a decimal that makes no sense: {found}")


def _of_size(size: int) -> FieldReader:
    return lambda cursor: cursor.take(size)


class PassingReaders:
    """Goes over values that are not read. One that contains itself is a step that leads to itself."""

    def __init__(self) -> None:
        self._known: dict[int, list[FieldReader]] = {}

    def over(self, schema: AvroSchema) -> FieldReader:
        """Goes over a value of this type."""
        if has_no_bytes(schema, {}):
            return lambda _: None
        match schema:
            case list():
                branches = [self.over(branch) for branch in schema]
                return lambda cursor: cursor.nested(branches[cursor.choice(len(branches))])
            case {"type": "record" | "error", "fields": fields}:
                return self._over_record(schema, [each["type"] for each in fields])
            case {"type": "enum", "symbols": symbols}:
                return lambda cursor: cursor.choice(len(symbols))
            case {"type": "fixed", "size": size}:
                return _of_size(size)
            case {"type": "array", "items": items}:
                return _over_blocks(self.over(items))
            case {"type": "map", "values": values}:
                value = self.over(values)
                return _over_blocks(lambda cursor: (cursor.bytes(), value(cursor)))
            case {"type": inner}:
                return self.over(inner)
        return _PASSING[schema]

    def _over_record(self, schema: Any, fields: Sequence[AvroSchema]) -> FieldReader:
        steps = self._known.get(id(schema))
        if steps is None:
            steps = self._known[id(schema)] = []
            steps += [self.over(field) for field in fields]
        own = steps

        def record(cursor: AvroCursor) -> None:
            for step in own:
                cursor.nested(step)

        return record


def _over_blocks(item: FieldReader) -> FieldReader:
    return lambda cursor: cursor.blocks(lambda inner: inner.nested(item))


_PASSING: dict[str, FieldReader] = {
    "boolean": AvroCursor.boolean,
    "int": AvroCursor.long,
    "long": AvroCursor.long,
    "float": _of_size(4),
    "double": _of_size(8),
    "bytes": AvroCursor.bytes,
    "string": AvroCursor.bytes,
}


def has_no_bytes(schema: AvroSchema, known: dict[int, bool]) -> bool:
    """True where every value of a type is written as nothing."""
    match schema:
        case "null" | {"type": "null"} | {"type": "fixed", "size": 0}:
            return True
        case {"type": "record" | "error", "fields": fields}:
            if id(schema) not in known:
                known[id(schema)] = False  # one that contains itself never ends
                known[id(schema)] = all(has_no_bytes(field["type"], known) for field in fields)
            return known[id(schema)]
        case {"type": dict() as inner}:
            return has_no_bytes(inner, known)
    return False


def is_unbounded(schema: AvroSchema, inside: frozenset[int] = frozenset()) -> bool:
    """True where few bytes may ask for any number of steps: a type that contains itself, or a list of nothing."""
    match schema:
        case list():
            return any(is_unbounded(branch, inside) for branch in schema)
        case {"type": "record" | "error", "fields": fields}:
            if id(schema) in inside:
                return True
            return any(is_unbounded(field["type"], inside | {id(schema)}) for field in fields)
        case {"type": "array", "items": items}:
            return has_no_bytes(items, {}) or is_unbounded(items, inside)
        case {"type": "map", "values": values}:
            return is_unbounded(values, inside)
        case {"type": dict() | list() as inner}:
            return is_unbounded(inner, inside)
    return False
