"""Schemas of other writers, as a registry has them: the definition of each type, and what its values mean.

Registries hold schemas that strict parsers refuse although the bytes are valid: with defaults of another type than
their field, decimals of impossible digits, symbols with dashes, one type defined twice. Only what decides about the
bytes is checked when a schema is parsed; what a field means is checked where it is read (`schemas.avro.cells`).

A definition is one object wherever it is used, and one that contains itself is a cycle: what goes over a schema has to
know where it has been.

What Avro's logical types and Kafka Connect's names of types say of values: a logical type that Avro does not know is
none, as its specification has it. One that it knows, and that makes no sense where it stands, is an error for who reads
the field, never taken for absent: the value would be another one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from schemas.avro.registered import WriterSchema
from schemas.errors import Code
from schemas.kinds.columns import new_field_text
from schemas.types import MAX_DECIMAL_PRECISION, MAX_VALUE_BYTES

Schema = Any
"""A schema of Avro, as JSON has it: a name, a mapping, or a list of a union's branches."""

UNITS_NS = {"timestamp-millis": 1_000_000, "timestamp-micros": 1_000, "timestamp-nanos": 1}
"""Nanoseconds."""
_OF_TYPES: Mapping[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "time-nanos": ("long",),
    **dict.fromkeys(UNITS_NS, ("long",)),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
}
"""The types that Avro's logical types are for. (avro.apache.org: Specification, "Logical Types".)"""
_BY_CONNECT = {
    "org.apache.kafka.connect.data.Decimal": "decimal",
    "io.debezium.time.Date": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.NanoTimestamp": "timestamp-nanos",
}
"""Kafka Connect's converters name some types by a property of their own with, or instead of, `logicalType`."""
_SCALE = re.compile("-?[0-9]{1,3}")
_OWN_SCALE_NAME = "io.debezium.data.VariableScaleDecimal"
"""The form of PostgreSQL's `numeric`."""


class WriterSchemaError(ValueError):
    """An incompatible schema of a writer: its records can't be rows. The message says why."""

    code = Code.SCHEMA_INCOMPATIBLE


class NewFieldError(WriterSchemaError):
    """A writer's schema has a field that is neither a column nor ignored."""

    code = Code.SCHEMA_WAITS

    def __init__(self, name: str) -> None:
        super().__init__(new_field_text(name))


def unwrapped(schema: Schema) -> Mapping[str, Any]:
    """A schema as a mapping whose `type` is a name."""
    while isinstance(schema, dict) and isinstance(schema["type"], dict):
        schema = schema["type"]
    return schema if isinstance(schema, dict) else {"type": schema}


def meaning(kind: Mapping[str, Any]) -> str | None:
    """The meaning of a type's values: its `logicalType`, or Avro's name for a type of Connect; None for neither.

    A logical type that Avro does not know is none. Raises: WriterSchemaError for one that makes no sense here.
    """
    avro, named = kind["type"], kind.get("logicalType")
    if not isinstance(named, str | None):
        raise WriterSchemaError(f"{avro} with a logical type that is no text")
    # Without a zone they are taken for UTC, as everything is here.
    logical = (named or "").removeprefix("local-")
    by_connect = _BY_CONNECT.get(str(kind.get("connect.name")))
    known = {each for each in (logical, by_connect) if each is not None and each in _OF_TYPES}
    if len(known) > 1:
        raise WriterSchemaError(f"{avro} with two meanings, {logical} and {by_connect}")
    for each in known:
        if avro not in _OF_TYPES[each]:
            raise WriterSchemaError(f"{avro} with the meaning {each}, which is for {_OF_TYPES[each][0]}")
    return next(iter(known), None)


def has_own_scale(kind: Mapping[str, Any]) -> bool:
    """True if a record is Debezium's decimal with its own scale."""
    fields = [(field["name"], unwrapped(field["type"])["type"]) for field in kind["fields"]]
    return kind["name"] == _OWN_SCALE_NAME and fields == [("scale", "int"), ("value", "bytes")]


def decimal_scale(kind: Mapping[str, Any]) -> int:
    """The scale of a `bytes` or `fixed` decimal; below zero for whole tens. Raises: WriterSchemaError if senseless."""
    precision, scale = kind.get("precision", MAX_DECIMAL_PRECISION), kind.get("scale")
    parameters = kind.get("connect.parameters")
    by_connect = parameters.get("scale") if isinstance(parameters, dict) else None
    if scale is None and isinstance(by_connect, str) and _SCALE.fullmatch(by_connect):
        scale = int(by_connect)
    if scale is None and "logicalType" in kind:
        scale = 0
    is_sound = (
        type(precision) is int
        and type(scale) is int
        and by_connect in (None, str(scale))
        and abs(scale) <= MAX_DECIMAL_PRECISION
        and max(scale, 1) <= precision
        and (kind["type"] == "bytes" or precision <= digits_in(kind["size"]) or "precision" not in kind)
    )
    if not is_sound or scale is None:
        found = f"scale {kind.get('scale', by_connect)}, precision {kind.get('precision')}"
        raise WriterSchemaError(f"{kind['type']} with a decimal that makes no sense: {found}")
    return int(scale)


def digits_in(size: int) -> int:
    """The number of decimal digits that always fit in a signed number of `size` bytes."""
    return int(math.log10(2) * (8 * max(1, size) - 1))


MAX_NESTING = 100
"""The maximum depth of nested types."""
_PLAIN = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_RECORDS = ("record", "error")
IS_EMPTY = "backfill.is_empty"
"""The property of a record's definition that is true if every value is written as nothing.

Eight fields of eight such fields and so on are very many, and go by at once.
"""


def parsed(schema: WriterSchema) -> Schema:
    """A schema as JSON has it, with definitions instead of names. Raises: WriterSchemaError."""
    if schema.kind != "AVRO":
        raise WriterSchemaError(f"a schema of type {schema.kind}, not AVRO")
    definitions = _Definitions()
    try:
        for text in schema.references:
            definitions.resolved(json.loads(text))
        return definitions.resolved(json.loads(schema.text))
    except (ValueError, RecursionError) as error:
        if isinstance(error, WriterSchemaError):
            raise
        raise no_avro(type(error).__name__) from None


def no_avro(reason: str) -> WriterSchemaError:
    """The error for what is no schema."""
    return WriterSchemaError(f"a schema that is no Avro ({reason})")


class _Definitions:
    """The named types of a schema and of those that it refers to.

    A name stands for its last definition before it: so Java writes schemas in which one name has two.
    """

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any]] = {}

    def resolved(self, schema: Schema, namespace: str = "", depth: int = 0) -> Schema:
        """Raises: WriterSchemaError."""
        if depth > MAX_NESTING:
            raise no_avro(f"more than {MAX_NESTING} types within each other")
        match schema:
            case str():
                return schema if schema in _PLAIN else self._definition(schema, namespace)
            case list():
                return [self.resolved(branch, namespace, depth + 1) for branch in schema]
            case {"type": "record" | "error" | "enum" | "fixed"}:
                return self._defined(schema, namespace, depth)
            case {"type": "array", "items": items}:
                return {**schema, "items": self.resolved(items, namespace, depth + 1)}
            case {"type": "map", "values": values}:
                return {**schema, "values": self.resolved(values, namespace, depth + 1)}
            case {"type": str() | dict() | list() as inner}:
                return {**schema, "type": self.resolved(inner, namespace, depth + 1)}
        raise no_avro(f"{type(schema).__name__} where a type is due")

    def _definition(self, name: str, namespace: str) -> Schema:
        found = self._named.get(_full_name(name, namespace), self._named.get(name))
        if found is None:
            raise no_avro(f"type {name} is not defined")
        return found

    def _defined(self, schema: Mapping[str, Any], namespace: str, depth: int) -> Schema:
        own = schema.get("namespace", namespace)
        name = _full_name(_text(schema, "name"), own if isinstance(own, str) else namespace)
        made = {**schema, "name": name}
        self._named[name] = made
        if schema["type"] in _RECORDS:
            inner = name.rpartition(".")[0]
            made[IS_EMPTY] = False  # one that contains itself never ends
            made["fields"] = [self._field(each, inner, depth) for each in _list(schema, "fields")]
            made[IS_EMPTY] = all(has_no_bytes(each["type"]) for each in made["fields"])
        elif schema["type"] == "enum":
            _list(schema, "symbols")
        else:
            size = schema.get("size")
            if type(size) is not int or not 0 <= size <= MAX_VALUE_BYTES:
                raise WriterSchemaError(f"a fixed of {size} bytes")
        return made

    def _field(self, field: object, namespace: str, depth: int) -> dict[str, Any]:
        if not isinstance(field, dict) or "type" not in field:
            raise no_avro("a field without a type")
        kind = self.resolved(field["type"], namespace, depth + 1)
        return {**field, "name": _text(field, "name"), "type": kind}


def has_no_bytes(schema: Schema) -> bool:
    """True where every value of a type is written as nothing."""
    match unwrapped(schema):
        case {"type": "null"} | {"type": "fixed", "size": 0}:
            return True
        case {"type": "record" | "error", **more}:
            return bool(more.get(IS_EMPTY))
    return False


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _text(schema: Mapping[str, Any], key: str) -> str:
    found = schema.get(key)
    if not isinstance(found, str):
        raise no_avro(f"{key} is no text")
    return found


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    found = schema.get(key)
    if not isinstance(found, list):
        raise no_avro(f"{key} is no list")
    return found
