"""Checks for invalid bytes that fastavro accepts and other readers of Avro refuse.

    a negative index of a union    it counts from the end, Java gives up
    a boolean above 1              TRUE, in Java FALSE
    a decimal of no byte           zero, Java gives up
    an int, symbol or index of a   the same as without the needless bytes, Java gives up
    union of more than five bytes
    a long or length of more       some number, Java gives up
    than ten bytes
    a last field that is cut       nothing, if it is passed over; Java gives up
    short

So bytes that fastavro has read are gone over once more, by steps that are made from the schema
once: a few microseconds a record, where the walk of `schemas.avro.limits` takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from fastavro.types import Schema

from schemas.avro.limits import MalformedError

Step = Callable[[bytes, int], int]
"""Takes the offset at which a value begins, returns that of its end. Raises: MalformedError."""

_FIXED_BYTES = {"null": 0, "float": 4, "double": 8}
_INT_BYTES, _LONG_BYTES = 5, 10
_INTS = range(-(2**31), 2**31)
_MORE_FOLLOWS = re.compile(rb"[\x80-\xff]{%d}" % _INT_BYTES)
"""Matches in a number of more than five bytes; also in texts, and in longs that are large."""


def strict_step(schema: Schema, *, passes_over: bool = False) -> Step:
    """Goes over a record by its schema, as `fastavro.parse_schema` gives it.

    The bytes must be a record that fastavro has read by the same schema. With `passes_over` it may have been read
    without some of its fields: where they are cut short, the step raises IndexError or ends behind the bytes. Where a
    record contains itself, the bytes must have passed `schemas.avro.limits.check_claims`.
    """
    named = cast("dict[str, Any]", schema)["__named_schemas"]
    step = _step(schema, {})
    return step if passes_over or _may_be_lax(schema, named) else _if_numbers_may_be_long(step)


def _if_numbers_may_be_long(step: Step) -> Step:
    """Most records of schemas without unions have nothing that can be wrong."""
    return lambda data, at: step(data, at) if _MORE_FOLLOWS.search(data, at) else len(data)


def _may_be_lax(schema: Any, named: Mapping[str, Any]) -> bool:
    match schema:
        case list() | "boolean" | {"type": "boolean"} | {"type": "bytes", "logicalType": "decimal"}:
            return True
        case {"type": "record", "fields": fields}:
            return any(_may_be_lax(field["type"], named) for field in fields)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner} | {"type": dict() as inner}:
            return _may_be_lax(inner, named)
        case str() if schema in named:
            return _may_be_lax(named[schema], named)
    return False


def _step(schema: Any, named: dict[str, Step]) -> Step:
    """`named` are the steps over types that were defined before."""
    match schema:
        case list():
            return _of_union([_step(branch, named) for branch in schema])
        case {"type": "record", "name": name, "fields": fields}:
            steps = list[Step]()
            named[name] = _in_turn(steps)
            steps += [_step(field["type"], named) for field in fields]
            return named[name]
        case {"type": "array", "items": items}:
            return _of_blocks(_step(items, named))
        case {"type": "map", "values": values}:
            return _of_blocks(_in_turn([_of_bytes, _step(values, named)]))
        case {"type": "fixed", "name": name, "size": size}:
            return named.setdefault(name, _of_size(size))
        case {"type": "enum", "name": name}:
            return named.setdefault(name, _of_int)
        case "int":
            return _of_int
        case "long":
            return _of_long
        case {"type": "bytes", "logicalType": "decimal"}:
            return _of_decimal
        case {"type": inner}:  # no other logical type says anything about bytes
            return _step(inner, named)
        case "boolean":
            return _of_boolean
        case "string" | "bytes":
            return _of_bytes
        case str() if schema in _FIXED_BYTES:
            return _of_size(_FIXED_BYTES[schema])
    return named[schema]


def _of_long(data: bytes, at: int) -> int:
    first = at
    while data[at] >= 0x80:
        at += 1
    if at - first >= _LONG_BYTES:
        raise MalformedError("a number of more than ten bytes")
    return at + 1


def _of_int(data: bytes, at: int) -> int:
    end = _of_long(data, at)
    # One that is too large is for the check that names its column.
    if end - at > _INT_BYTES and _number(data, at)[0] in _INTS:
        raise MalformedError("a number of more than five bytes")
    return end


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Zigzag, seven bits a byte; and where it ends."""
    end = _of_long(data, at)
    raw = 0
    for byte in reversed(data[at:end]):
        raw = raw << 7 | byte & 0x7F
    return (raw >> 1) ^ -(raw & 1), end


def _index(data: bytes, at: int) -> tuple[int, int]:
    raw = data[at]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), at + 1
    _of_int(data, at)
    return _number(data, at)


def _of_bytes(data: bytes, at: int) -> int:
    length = data[at]
    if length < 0x80:
        return at + 1 + (length >> 1)
    length, at = _number(data, at)
    return at + length


def _of_decimal(data: bytes, at: int) -> int:
    if data[at] == 0:
        raise MalformedError("a decimal of no byte")
    return _of_bytes(data, at)


def _of_boolean(data: bytes, at: int) -> int:
    if data[at] > 1:
        raise MalformedError(f"a boolean of {data[at]}")
    return at + 1


def _of_size(size: int) -> Step:
    return lambda _, at: at + size


def _in_turn(steps: Sequence[Step]) -> Step:
    def over(data: bytes, at: int) -> int:
        for step in steps:
            at = step(data, at)
        return at

    return over


def _of_union(branches: Sequence[Step]) -> Step:
    def over(data: bytes, at: int) -> int:
        index, at = _index(data, at)
        if index < 0:
            raise MalformedError("a union branch or symbol that does not exist")
        return branches[index](data, at)

    return over


def _of_blocks(item: Step) -> Step:
    def over(data: bytes, at: int) -> int:
        count, at = _number(data, at)
        while count:
            if count < 0:  # Avro's form with the size of the block behind the count
                count, (_, at) = -count, _number(data, at)
            for _ in range(count):
                at = item(data, at)
            count, at = _number(data, at)
        return at

    return over
