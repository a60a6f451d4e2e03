"""Values of a JSON text, without a loss: no number becomes a float on the way.

And field schemas from the schema in a record's frame: types of Kafka Connect, with the names of their meanings. Source:
https://kafka.apache.org/documentation/#connect_schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from schemas.errors import Code

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
MAX_DEPTH, MAX_NAME, MAX_NUMBER = 999, 50_000, 1_000
"""Limits of Spark's reader, so that both refuse the same records: nested objects and lists, characters of each."""


class JsonError(ValueError):
    """Invalid bytes, with the reason. The message holds none of them; the caller knows their location."""

    def __init__(self, reason: str, code: Code = Code.JSON_MALFORMED, column: str | None = None) -> None:
        self.code, self.column = code, column
        super().__init__(reason)


class Kind(Enum):
    """The kind of a JSON value."""

    TEXT = auto()
    INTEGER = auto()
    FRACTION = auto()
    """A number with a fraction or an exponent."""
    BOOLEAN = auto()
    NULL = auto()
    NESTED = auto()
    """An object or a list."""


class Token:
    """A value. `text` is the text that a string stands for, and of everything else the JSON text without spaces.

    A number, also one within an object or a list, has the characters that it was written with.

    An object or list that was read with what is in it writes its text when it is asked for; an object has its `fields`.
    """

    __slots__ = ("_items", "_text", "fields", "kind")

    def __init__(
        self,
        kind: Kind,
        text: str | None,
        fields: Fields | None = None,
        items: list[Token] | None = None,
    ) -> None:
        self.kind, self.fields, self._text, self._items = kind, fields, text, items

    @property
    def text(self) -> str:
        """See the class."""
        if self._text is None:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        if self.fields is not None:
            return "{" + ",".join(f"{quoted(name)}:{_inside(each)}" for name, each in self.fields) + "}"
        return "[" + ",".join(map(_inside, self._items or ())) + "]"


Fields = list[tuple[str, Token]]
"""The fields of an object, in their order; a name may come twice."""


def _inside(token: Token) -> str:
    return quoted(token.text) if token.kind is Kind.TEXT else token.text


_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')


def quoted(text: str) -> str:
    """Quotes as Spark writes a string inside of an object: characters that do not fit 16 bits are escaped."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    if (short := _SHORT.get(found[0])) is not None:
        return short
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))


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
