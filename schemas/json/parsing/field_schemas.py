"""Field schemas from the schema in a record's frame: types of Kafka Connect, with the names of their meanings.

Source: https://kafka.apache.org/documentation/#connect_schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import Code
from schemas.json.parsing.tokens import JsonError, Kind, Token

_SCALE = re.compile(r"-?[0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """A column in the schema that comes with a record; None for what it does not say.

    `meaning` is the name of its semantic type, `scale` a decimal's, `fault` what of all that can't be understood.
    """

    meaning: str | None = None
    scale: int | None = None
    type: str | None = None
    fault: str | None = None


UNDESCRIBED = FieldSchema()
NO_SCHEMAS: Mapping[str, FieldSchema] = {}
"""The field schemas of a record without a frame."""


def field_schemas(schema: Token, half: str | None = None) -> Mapping[str, FieldSchema]:
    """The fields that a schema describes, or those of its field `half`; none for null.

    Raises: JsonError(SCHEMA_INCOMPATIBLE) for what is no schema of an object.
    """
    if schema.kind is Kind.NULL:
        return NO_SCHEMAS
    fields = _fields(json.loads(schema.text) if schema.kind is Kind.NESTED else None)
    if half is not None:
        inner = next((each for each in fields if each.get("field") == half), {})
        fields = _fields(inner)
    return {each["field"]: _described(each) for each in fields if isinstance(each.get("field"), str)}


def value_schema(schema: Token) -> FieldSchema:
    """The field schema in a schema of a single value instead of an object."""
    found = json.loads(schema.text) if schema.kind is Kind.NESTED else None
    return _described(found) if isinstance(found, dict) else UNDESCRIBED


def _fields(schema: Any) -> list[dict[str, Any]]:
    fields = schema.get("fields", []) if isinstance(schema, dict) else None
    if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
        raise JsonError("a schema in its frame that is none of an object", Code.SCHEMA_INCOMPATIBLE)
    return fields


def _described(field: Mapping[str, object]) -> FieldSchema:
    kind, meaning = field.get("type"), field.get("name")
    parameters = {} if field.get("parameters") is None else field["parameters"]
    for name, part in (("type", kind), ("name", meaning)):
        if not (part is None or isinstance(part, str)):
            return FieldSchema(fault=f"a {name} that is no text")
    if not isinstance(parameters, dict):
        return FieldSchema(fault="parameters that are no object")
    scale = parameters.get("scale")
    if scale is not None and not (isinstance(scale, str) and _SCALE.fullmatch(scale)):
        return FieldSchema(fault="a scale that is no whole number in a text")
    return FieldSchema(
        None if meaning is None else str(meaning),
        None if scale is None else int(scale),
        None if kind is None else str(kind),
    )
