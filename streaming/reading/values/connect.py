"""Values as Kafka Connect and Debezium have them: a frame's schema, and what stands for a value that is left out.

Source: https://kafka.apache.org/documentation/#connect_schemas, and for names of days, instants and decimals
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from schemas.errors import Code
from schemas.table import Column
from schemas.types import TypeName
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_text import JsonObject
from streaming.reading.values.json_values import (
    Reader,
    days,
    instant,
    iso_date,
    number_or_text,
    plain_reader,
    unscaled,
)
from streaming.reading.values.writer_schemas import BY_CONNECT, INSTANT_UNITS

PARTS = {"schema", "payload"}
_DATES = {name for name, meaning in BY_CONNECT.items() if meaning == "date"}
_INSTANTS = {
    name: 10**9 // INSTANT_UNITS[meaning] for name, meaning in BY_CONNECT.items() if meaning in INSTANT_UNITS
}
"""Units in a second."""
_MODES = {"connect": 1_000, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_ISO_DATE, _ISO_TIMESTAMP = "io.debezium.time.IsoDate", "io.debezium.time.IsoTimestamp"
_ZONED = "io.debezium.time.ZonedTimestamp"
_DECIMAL, _OWN_SCALE = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"
_SCALE = re.compile(r"-?[0-9]{1,3}")


class FieldMeaning(NamedTuple):
    """A schema of a field; None for what it does not say. `fault` is what of it can't be understood."""

    name: str | None = None
    scale: int | None = None
    type: str | None = None
    fault: str | None = None


UNSAID = FieldMeaning()
Meanings = Mapping[str, FieldMeaning]
NO_MEANINGS: Meanings = {}


def meanings_in(schema: Any, inside: str | None = None) -> Meanings:
    """The fields that a schema describes, or those of its field `inside`; none for null.

    Raises: InvalidRecordError(SCHEMA_INCOMPATIBLE) for what is no schema of an object.
    """
    if schema is None:
        return NO_MEANINGS
    fields = _fields_of(schema)
    if inside is not None:
        fields = _fields_of(next((each for each in fields if dict(each).get("field") == inside), ()))
    named = ((dict(each).get("field"), each) for each in fields)
    return {name: meaning_of(each) for name, each in named if type(name) is str}


def _fields_of(schema: Any) -> Sequence[JsonObject]:
    fields = dict(schema).get("fields", []) if type(schema) is tuple else None
    if not isinstance(fields, list) or not all(type(each) is tuple for each in fields):
        raise InvalidRecordError("a schema in its frame that is none of an object", Code.SCHEMA_INCOMPATIBLE)
    return fields


def meaning_of(schema: Any) -> FieldMeaning:
    """A schema of one value; nothing of what is no object."""
    if type(schema) is not tuple:
        return UNSAID
    kind, name, parameters = map(dict(schema).get, ("type", "name", "parameters"))
    for what, part in (("type", kind), ("name", name)):
        if part is not None and type(part) is not str:
            return FieldMeaning(fault=f"a {what} that is no text")
    if type(parameters) is not tuple and parameters is not None:
        return FieldMeaning(fault="parameters that are no object")
    scale = dict(parameters or ()).get("scale")
    if scale is not None and not (type(scale) is str and _SCALE.fullmatch(scale)):
        return FieldMeaning(fault="a scale that is no whole number in a text")
    return FieldMeaning(name, None if scale is None else int(scale), kind)


def described_reader(
    column: Column, meaning: FieldMeaning, time: str | None, decimal: str | None, *, truncates: bool
) -> Reader:
    """Reads values as connectors write them, under their settings and the schema in the record.

    `time` and `decimal` are the connector's `time.precision.mode` and `decimal.handling.mode`; a column's own win.
    Raises: InvalidRecordError(SCHEMA_INCOMPATIBLE) where the schema contradicts them, or can't be understood.
    """
    time, decimal = column.time or time, column.decimal or decimal
    reader: Reader | None
    match column.type.name:
        case TypeName.DATE:
            reader = _dates(meaning, time)
        case TypeName.TIMESTAMP:
            reader = _instants(meaning, time, truncates=truncates)
        case TypeName.DECIMAL:
            reader = _decimals(column, meaning, decimal)
        case _:
            return plain_reader(column, truncates=truncates)
    found = meaning.fault or (None if reader else f"type {meaning.type} and meaning {meaning.name}")
    if found is not None or reader is None:
        raise InvalidRecordError(f"a schema in its frame with {found}", Code.SCHEMA_INCOMPATIBLE, column.name)
    return reader


def _dates(meaning: FieldMeaning, time: str | None) -> Reader | None:
    if meaning.name is None:
        return iso_date if time == "isostring" else days
    if meaning.name == _ISO_DATE:
        return iso_date if time in ("isostring", "adaptive") else None
    return days if meaning.name in _DATES and time != "isostring" else None


def _instants(meaning: FieldMeaning, time: str | None, *, truncates: bool) -> Reader | None:
    name, unit = meaning.name, _MODES.get(time or "")
    if name == _ZONED or (name == _ISO_TIMESTAMP and time in ("isostring", "adaptive")):
        unit = None
    elif name in _INSTANTS and time == "adaptive":
        unit = _INSTANTS[name]
    elif name is not None and (unit is None or _INSTANTS.get(name) != unit):
        return None
    return partial(instant, per_second=unit, truncates=truncates)


def _decimals(column: Column, meaning: FieldMeaning, decimal: str | None) -> Reader | None:
    kind, is_bytes = column.type, meaning.type in ("bytes", "struct") or meaning.name is not None
    if column.unsigned is not None:
        return None if is_bytes or meaning.type == "string" else plain_reader(column)
    if decimal != "precise":
        return None if is_bytes else partial(number_or_text, kind=kind)
    is_known = meaning.name in (None, _OWN_SCALE) or (meaning.name == _DECIMAL and meaning.scale is not None)
    if not is_known or meaning.type not in (None, "bytes", "struct"):
        return None
    return partial(unscaled, kind=kind, scale=meaning.scale)


# A value that the database did not log has a placeholder in its place. A text stands for itself, bytes are its UTF-8,
# in hexadecimal or base64 by `binary.handling.mode`; an array has one element of text, bytes or uuid, or as many
# numbers as it has bytes, and an hstore one pair. Source: https://github.com/debezium/debezium,
# `UnchangedToastedPlaceholder` and `PostgresValueConverter`.


def placeholder_bytes(setting: str) -> bytes:
    """The bytes of a setting, which is a text, or `hex:` and bytes."""
    return bytes.fromhex(setting[4:]) if setting.startswith("hex:") else setting.encode()


def placeholder_texts(setting: str) -> frozenset[str]:
    """Every form that is text, or is taken for the text of its JSON without spaces."""
    data = placeholder_bytes(setting)
    text, url_safe = data.decode(), base64.urlsafe_b64encode(data).decode()
    scalars = [text, data.hex(), base64.b64encode(data).decode(), url_safe, url_safe.rstrip("=")]
    signed = [byte - 256 if byte > 127 else byte for byte in data]  # as Java has bytes
    single = [base64.b64encode(bytes([byte])).decode() for byte in data]
    made_of_name = uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3)
    nested: list[object] = [
        *([scalar] for scalar in (*scalars, str(made_of_name))),
        signed,
        [float(number) for number in signed],
        single,
        [{"scale": 0, "value": each} for each in single],
        [True] * len(data),
        {text: text},
    ]
    texts = (json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in nested)
    return frozenset([*scalars, *texts])
