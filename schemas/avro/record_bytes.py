"""The bytes of one Avro record, read from front to end and without trust.

Avro writes the length in front of a text and the count in front of a list, and nothing else says how much follows: six
bytes can announce a terabyte. So nothing is allocated for bytes that are not there, and lists of values without bytes,
and records that contain themselves, have limits.

Refused is also what other readers of Avro refuse and some take for a value: a negative index of a union, a boolean
above 1, a decimal of no byte, an int or an index of more than five bytes, and a long of more than ten.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

from schemas.avro.writer_schemas import IS_EMPTY, Schema, unwrapped
from schemas.errors import Code
from schemas.table import MAX_VNODE_COUNT
from schemas.types import MAX_VALUE_BYTES

MAX_ITEMS = MAX_VNODE_COUNT
"""The limit of a list whose items have no bytes, and of a barrier's progress, which has at most an entry a vnode."""
MAX_DEPTH = 200
"""The maximum depth of nested records, lists and choices."""
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
_INT_BYTES, _LONG_BYTES = 5, 10
_NUMBER = re.compile(rb"[\x80-\xff]*+[\x00-\x7f]")


class MalformedError(ValueError):
    """Bytes that are not a record: the reason, and the code if it has its own. The caller knows the location."""

    def __init__(self, reason: str, code: Code | None = None) -> None:
        self.code = code
        super().__init__(reason)


class UnknownChoiceError(MalformedError):
    """A symbol, or a branch of a union, that the schema does not have; `choice` names it."""

    def __init__(self, choice: str) -> None:
        self.choice = choice
        super().__init__("a union branch or symbol that does not exist")


class RecordBytes:
    """Reads a record from `at` on. All methods raise MalformedError.

    `is_limited`: a list of more than `MAX_ITEMS` is refused, also where all of them are there.
    """

    __slots__ = ("_claim", "_data", "_is_limited", "_refusal", "at")

    def __init__(self, data: bytes, at: int = 0, *, is_limited: bool = False) -> None:
        self._data, self.at, self._is_limited = data, at, is_limited
        self._claim = MalformedError("truncated", Code.AVRO_TRUNCATED)
        self._refusal: MalformedError | None = None

    def refuse(self, reason: MalformedError) -> None:
        """Refuse the record when it is read, for the first reason, unless bytes are missing or left over."""
        self._refusal = self._refusal or reason

    def finish(self) -> None:
        """Check that nothing is left, and that nothing was refused."""
        if left := len(self._data) - self.at:
            raise MalformedError(f"{left} bytes left over", Code.AVRO_TRAILING)
        if self._refusal is not None:
            raise self._refusal

    def take(self, size: int) -> bytes:
        """The next bytes, so many."""
        end = self.at + size
        if end > len(self._data):
            raise self._claim
        found, self.at = self._data[self.at : end], end
        return found

    def number(self) -> int:
        """A long: zigzag, seven bits a byte, of 64 bits."""
        short = self._data[self.at] if self.at < len(self._data) else 0x80
        if short < 0x80:  # most of them
            self.at += 1
            return (short >> 1) ^ -(short & 1)
        found = _NUMBER.match(self._data, self.at)
        if found is None and len(self._data) - self.at < _LONG_BYTES:
            raise self._claim
        if found is None or found.end() - self.at > _LONG_BYTES:
            code = Code.AVRO_LIMIT if found is None or self._is_limited else None
            raise MalformedError("a number of more than ten bytes", code)
        raw, self.at = 0, found.end()
        for byte in reversed(found[0]):
            raw = raw << 7 | byte & 0x7F
        raw &= 2**64 - 1
        return (raw >> 1) ^ -(raw & 1)

    def integer(self) -> int:
        """An int. One that is too large is for the check that names its column."""
        first, number = self.at, self.number()
        if self.at - first > _INT_BYTES and INT_MIN <= number <= INT_MAX:
            self.refuse(MalformedError("a number of more than five bytes"))
        return number

    def choice(self, count: int, what: str = "choice") -> int:
        """The index of a branch or a symbol, of so many."""
        index = self.integer()
        if not 0 <= index < count:
            raise UnknownChoiceError(f"{what} with number {index} where 0..{count - 1} exist")
        return index

    def has_value(self, schema: Schema) -> bool:
        """True for a type that is no union; of a union its branch is read, and False for null."""
        return not isinstance(schema, list) or _name(schema[self.choice(len(schema))]) != "null"

    def boolean(self) -> bool:
        """A byte, 0 or 1."""
        [byte] = self.take(1)
        if byte > 1:
            self.refuse(MalformedError(f"a boolean of {byte}"))
        return byte == 1

    def real(self) -> float:
        """A float."""
        [found] = struct.unpack("<f", self.take(4))
        return float(found)

    def double(self) -> float:
        """A double."""
        [found] = struct.unpack("<d", self.take(8))
        return float(found)

    def sized(self) -> bytes:
        """Bytes with their length in front."""
        size = self.number()
        if not 0 <= size <= MAX_VALUE_BYTES:
            raise MalformedError(f"a length of {size}, where {MAX_VALUE_BYTES} is the limit", Code.AVRO_LIMIT)
        return self.take(size)

    def text(self) -> str:
        """A text in UTF-8."""
        try:
            return self.sized().decode()
        except UnicodeDecodeError:
            raise MalformedError("a text is not UTF-8", Code.BAD_ENCODING) from None

    def within(self, first: int, last: int) -> int:
        """The number of a day or an instant, in units of its type."""
        number = self.number()
        if not first <= number <= last:
            raise MalformedError("a date or timestamp outside 0001..9999", Code.VALUE_OUT_OF_RANGE)
        return number

    def items(self) -> Iterator[None]:
        """A step for each item of a list or map, which has to be read before the next one.

        Blocks have a count in front, or a negative one and their size. Of items without bytes only one a block is read.
        """
        total = 0
        while count := self.number():
            end = None
            if count < 0:
                count, size = -count, self.number()
                end = self.at + size
            total += count
            if total > MAX_ITEMS:
                self._claim = MalformedError(f"an array of {total} items or more", Code.AVRO_LIMIT)
            for _ in range(count):
                if self._is_limited and total > MAX_ITEMS:
                    raise self._claim
                start = self.at
                yield
                if self.at == start:
                    if total > MAX_ITEMS:
                        raise self._claim
                    break
            if end not in (None, self.at):  # readers may go by either
                raise MalformedError("a block whose size is not that of its items")

    def pass_over(self, schema: Schema, depth: int = 0) -> None:
        """Go on behind a value by a schema as `writer_schemas.parsed` gives it."""
        if depth > MAX_DEPTH:
            raise MalformedError(f"more than {MAX_DEPTH} values within each other", Code.AVRO_LIMIT)
        match unwrapped(schema):
            case {"type": list() as branches}:
                self.pass_over(branches[self.choice(len(branches))], depth + 1)
            case {"type": "int" | "long"}:
                self.number()
            case {"type": "enum"}:
                self.integer()
            case {"type": "boolean"}:
                self.boolean()
            case {"type": "float"}:
                self.take(4)
            case {"type": "double"}:
                self.take(8)
            case {"type": "string" | "bytes"}:
                self.sized()
            case {"type": "fixed", "size": size}:
                self.take(size)
            case {"type": "record" | "error", "fields": fields, **more} if not more.get(IS_EMPTY):
                for field in fields:
                    self.pass_over(field["type"], depth + 1)
            case {"type": "array", "items": items}:
                for _ in self.items():
                    self.pass_over(items, depth + 1)
            case {"type": "map", "values": values}:
                for _ in self.items():
                    self.sized()
                    self.pass_over(values, depth + 1)


def _name(schema: Any) -> Any:
    return unwrapped(schema)["type"]
