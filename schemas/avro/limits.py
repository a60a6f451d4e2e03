"""Limits for Avro: lengths and counts are checked before anything is allocated for them.

Avro writes the length in front of a text and the count in front of an array, and nothing else says how much follows.
Six bytes can announce a terabyte. The walk below goes over a record without building a value, so it costs no memory
whatever the bytes say, and it ends at the first claim that no record of ours makes.

Where a record contains itself, nothing in its schema says how deep the bytes may go: the walk has a limit for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fastavro.types import Schema

from schemas.errors import Code
from schemas.table import MAX_VNODE_COUNT

MAX_VALUE_BYTES = 64 << 20
"""The limit of one text or binary value. The JVM that decodes upstream changes is given the same."""
MAX_ITEMS = MAX_VNODE_COUNT
"""The limit of an array: progress has at most an entry a vnode."""
MAX_DEPTH = 200
"""The maximum depth of nested records, lists and choices."""
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_OPTIONAL = 2
"""Branches of `[null, T]`; a union of more is a choice that a later version may extend."""


class MalformedError(ValueError):
    """Bytes that are not a record: the reason, and the code if it has its own. The caller knows the location."""

    def __init__(self, reason: str, code: Code | None = None) -> None:
        self.code = code
        super().__init__(reason)


class _CutShortError(Exception):
    """The bytes end inside the record; the decoder reports it."""


def check_claims(data: bytes, schema: Schema) -> None:
    """Walk over a record by its schema, as `fastavro.parse_schema` gives it.

    Raises: MalformedError. Its code is AVRO_LIMIT for a length or count that is negative or beyond the limits, and
    None for a symbol or a choice that the schema does not have. All else that may be wrong is left to the decoder.
    """
    try:
        _Walk(data, cast("dict[str, Any]", schema)["__named_schemas"]).over(schema)
    except _CutShortError:
        return


def is_unbounded(schema: Any, inside: frozenset[str] = frozenset()) -> bool:
    """True where few bytes may ask for any number of steps.

    That is a record that contains itself, and a list of what takes no bytes, or is passed over without a look at them.
    """
    match schema:
        case list():
            return any(is_unbounded(branch, inside) for branch in schema)
        case {"type": "record", "name": name, "fields": fields}:
            return any(is_unbounded(field["type"], inside | {name}) for field in fields)
        case {"type": "array", "items": items}:
            return _is_passed_unread(items) or is_unbounded(items, inside)
        case {"type": "map", "values": values}:
            return is_unbounded(values, inside)
        case {"type": dict() | list() as inner}:
            return is_unbounded(inner, inside)
    return isinstance(schema, str) and schema in inside


def _is_passed_unread(items: Any) -> bool:
    """True for items over which fastavro goes by a seek, which no end of the data stops."""
    match items:
        case {"type": "fixed"}:
            return True
        case {"type": "record", "fields": fields}:
            return all(_is_passed_unread(field["type"]) for field in fields)
        case {"type": str() as inner}:
            return _is_passed_unread(inner)
    return items in ("null", "boolean", "float", "double")


class _Walk:
    def __init__(self, data: bytes, named: Mapping[str, Schema]) -> None:
        self._data, self._at, self._named = data, 0, named
        self._depth = 0

    def over(self, schema: Any) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise MalformedError(f"more than {MAX_DEPTH} values within each other", Code.AVRO_LIMIT)
        self._over(schema)
        self._depth -= 1

    def _over(self, schema: Any) -> None:
        match schema:
            case list():
                self._union(schema)
            case {"type": "record", "fields": fields}:
                for field in fields:
                    self.over(field["type"])
            case {"type": "enum", "symbols": symbols, "name": name}:
                self._choice(len(symbols), f"a symbol of {name}")
            case {"type": "array", "items": items}:
                self._array(items)
            case {"type": "map", "values": values}:
                self._array({"type": "record", "fields": [{"type": "string"}, {"type": values}]})
            case {"type": "fixed", "size": size}:
                self._skip(size)
            case {"type": inner}:  # a logical type says nothing about bytes
                self._over(inner)
            case "int" | "long":
                self._number()
            case "string" | "bytes":
                self._skip(self._claimed(MAX_VALUE_BYTES, "a length"))
            case str() if schema in _FIXED_BYTES:
                self._skip(_FIXED_BYTES[schema])
            case _:
                self._over(self._named[schema])

    def _union(self, branches: list[Schema]) -> None:
        index = self._number()
        if 0 <= index < len(branches):
            self.over(branches[index])
        elif len(branches) > _OPTIONAL:
            raise MalformedError(f"choice {index} where 0..{len(branches) - 1} exist")
        else:
            raise _CutShortError  # what follows is unknown; the decoder refuses it

    def _choice(self, count: int, what: str) -> None:
        index = self._number()
        if not 0 <= index < count:
            raise MalformedError(f"{what} with number {index} where 0..{count - 1} exist")

    def _array(self, items: Schema) -> None:
        total = 0
        while count := self._number():
            end = None
            if count < 0:  # Avro's form with the size of the block behind the count
                count, size = -count, self._number()
                end = self._at + size
            total += count
            if total > MAX_ITEMS:
                raise MalformedError(f"an array of {total} items or more", Code.AVRO_LIMIT)
            for _ in range(count):
                self.over(items)
            if end not in (None, self._at):  # fastavro goes by the size, to what may be a count of any height
                raise MalformedError("a block whose size is not that of its items")

    def _claimed(self, most: int, what: str) -> int:
        claimed = self._number()
        if not 0 <= claimed <= most:
            raise MalformedError(f"{what} of {claimed}, where {most} is the limit", Code.AVRO_LIMIT)
        return claimed

    def _number(self) -> int:
        """Zigzag, seven bits a byte, ten bytes at most."""
        raw = 0
        for shift in range(0, 70, 7):
            if self._at >= len(self._data):
                raise _CutShortError
            byte = self._data[self._at]
            self._at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
        raise MalformedError("a number of more than ten bytes", Code.AVRO_LIMIT)

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise _CutShortError
