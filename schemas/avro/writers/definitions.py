"""Writers' schemas with the definition of each type instead of its name.

Registries hold schemas that strict parsers refuse although the bytes are valid: with defaults of another type than
their field, decimals of impossible digits, symbols with dashes, one type defined twice. Only what decides about the
bytes is checked here; what a field means is checked where it is read (`schemas.avro.cells`).

A definition is one object wherever it is used, and one that contains itself is a cycle: what goes over a schema has to
know where it has been.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from schemas.avro.limits import MAX_VALUE_BYTES
from schemas.avro.registered import WriterSchema
from schemas.avro.writers.meanings import MisfitError, Schema

MAX_NESTING = 100
"""The maximum depth of nested types."""
_PLAIN = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_RECORDS = ("record", "error")


def parsed(schema: WriterSchema) -> Schema:
    """A schema as JSON has it, with definitions instead of names. Raises: MisfitError."""
    if schema.kind != "AVRO":
        raise MisfitError(f"a schema of type {schema.kind}, not AVRO")
    definitions = _Definitions()
    try:
        for text in schema.references:
            definitions.resolved(json.loads(text))
        return definitions.resolved(json.loads(schema.text))
    except (ValueError, RecursionError) as error:
        if isinstance(error, MisfitError):
            raise
        raise no_avro(type(error).__name__) from None


def no_avro(reason: str) -> MisfitError:
    """The error for what is no schema."""
    return MisfitError(f"a schema that is no Avro ({reason})")


class _Definitions:
    """The named types of a schema and of those that it refers to.

    A name stands for its last definition before it: so Java writes schemas in which one name has two.
    """

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any]] = {}

    def resolved(self, schema: Schema, namespace: str = "", depth: int = 0) -> Schema:
        """Raises: MisfitError."""
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
            made["fields"] = [self._field(each, inner, depth) for each in _list(schema, "fields")]
        elif schema["type"] == "enum":
            _list(schema, "symbols")
        else:
            size = schema.get("size")
            if type(size) is not int or not 0 <= size <= MAX_VALUE_BYTES:
                raise MisfitError(f"a fixed of {size} bytes")
        return made

    def _field(self, field: object, namespace: str, depth: int) -> dict[str, Any]:
        if not isinstance(field, dict) or "type" not in field:
            raise no_avro("a field without a type")
        kind = self.resolved(field["type"], namespace, depth + 1)
        return {**field, "name": _text(field, "name"), "type": kind}


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
