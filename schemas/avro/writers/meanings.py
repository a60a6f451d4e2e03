"""Meanings of types in writers' schemas: what Avro's logical types and Kafka Connect's names of types say of values.

A logical type that Avro does not know is none, as its specification has it. One that it knows, and that makes no sense
where it stands, is an error for who reads the field, never taken for absent: the value would be another one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from schemas.errors import Code
from schemas.kinds.columns import new_field_text
from schemas.types import MAX_DECIMAL_PRECISION

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


class MisfitError(ValueError):
    """Records of a writer's schema can't be rows; the message says why."""

    code = Code.SCHEMA_INCOMPATIBLE


class NewFieldError(MisfitError):
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

    A logical type that Avro does not know is none. Raises: MisfitError for one that makes no sense here.
    """
    avro, named = kind["type"], kind.get("logicalType")
    if not isinstance(named, str | None):
        raise MisfitError(f"{avro} with a logical type that is no text")
    # Without a zone they are taken for UTC, as everything is here.
    logical = (named or "").removeprefix("local-")
    by_connect = _BY_CONNECT.get(str(kind.get("connect.name")))
    known = {each for each in (logical, by_connect) if each is not None and each in _OF_TYPES}
    if len(known) > 1:
        raise MisfitError(f"{avro} with two meanings, {logical} and {by_connect}")
    for each in known:
        if avro not in _OF_TYPES[each]:
            raise MisfitError(f"{avro} with the meaning {each}, which is for {_OF_TYPES[each][0]}")
    return next(iter(known), None)


def has_own_scale(kind: Mapping[str, Any]) -> bool:
    """True if a record is Debezium's decimal with its own scale."""
    fields = [(field["name"], unwrapped(field["type"])["type"]) for field in kind["fields"]]
    return kind["name"] == _OWN_SCALE_NAME and fields == [("scale", "int"), ("value", "bytes")]


def decimal_scale(kind: Mapping[str, Any]) -> int:
    """The scale of a `bytes` or `fixed` decimal; below zero for whole tens. Raises: MisfitError if senseless."""
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
        raise MisfitError(f"{kind['type']} with a decimal that makes no sense: {found}")
    return int(scale)


def digits_in(size: int) -> int:
    """The number of decimal digits that always fit in a signed number of `size` bytes."""
    return int(math.log10(2) * (8 * max(1, size) - 1))
