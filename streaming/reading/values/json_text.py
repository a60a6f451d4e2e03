"""JSON texts as Python values in which no number loses a digit: RFC 8259 by `json`, and what it lets pass refused.

object          `JsonObject`, with its fields in order, also those whose name comes twice
list            list
number          `JsonNumber`, the characters that were written
text            str
true, false     bool
null            None
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, NoReturn

from schemas.errors import Code
from streaming.reading.values.invalid import InvalidRecordError

MAX_DEPTH, MAX_NAME, MAX_NUMBER = 999, 50_000, 1_000
"""Objects and lists in each other, and characters of each (docs/formats.md#json-values)."""
_SHALLOW, STACK_FRAMES = 200, 5_000
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"-?[0-9]+")
_ESCAPED = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class JsonNumber(str):
    """A number by its characters."""

    __slots__ = ()

    @property
    def is_whole(self) -> bool:
        """True without a fraction and an exponent."""
        return _WHOLE.fullmatch(self) is not None


class JsonObject:
    """An object. `fields` has the last value of each name, `pairs` has all of them."""

    __slots__ = ("fields", "pairs")

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs, self.fields = pairs, dict(pairs)

    @property
    def names(self) -> list[str]:
        """The names in their order, those that come twice included."""
        return [name for name, _ in self.pairs]


def _number(digits: str) -> JsonNumber:
    if len(digits) > MAX_NUMBER:
        raise ValueError(f"a number of more than {MAX_NUMBER} characters")
    return JsonNumber(digits)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word}, which is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=JsonObject, parse_int=_number, parse_float=_number, parse_constant=_refuse
)


def text_of(data: bytes) -> str:
    """Bytes in UTF-8. Raises: InvalidRecordError(BAD_ENCODING)."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidRecordError("bytes that are not UTF-8", Code.BAD_ENCODING) from None


def parsed(data: bytes) -> Any:
    """The one value that bytes are. Raises: InvalidRecordError, BAD_ENCODING where they are not UTF-8."""
    text = text_of(data)
    may_be_deep = text.count("{") + text.count("[") > _SHALLOW
    if may_be_deep:
        # `json` takes a frame of Python's stack for each level, and so does what goes over its result.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), STACK_FRAMES))
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise InvalidRecordError("text that is no JSON within the limits") from None
    if may_be_deep and _is_too_deep(value):
        raise InvalidRecordError(f"more than {MAX_DEPTH} objects and lists in each other")
    if len(text) > MAX_NAME and _has_long_name(value):
        raise InvalidRecordError(f"a name of more than {MAX_NAME} characters")
    return value


def parsed_object(data: bytes) -> JsonObject:
    """The object that bytes are. Raises: InvalidRecordError, as `parsed`."""
    return as_object(parsed(data))


def as_object(value: Any) -> JsonObject:
    """A value that has to be an object. Raises: InvalidRecordError."""
    if not isinstance(value, JsonObject):
        raise InvalidRecordError("no object where one has to be")
    return value


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [each for one in level for each in _inside(one) if isinstance(each, JsonObject | list)]
        if not level:
            return False
    return True


def _has_long_name(value: Any) -> bool:
    is_long = isinstance(value, JsonObject) and any(len(name) > MAX_NAME for name, _ in value.pairs)
    return is_long or any(map(_has_long_name, _inside(value)))


def _inside(value: Any) -> list[Any]:
    if isinstance(value, JsonObject):
        return [each for _, each in value.pairs]
    return value if isinstance(value, list) else []


def compact(value: Any) -> str:
    """The text of a value without spaces; numbers keep their characters, characters beyond U+FFFF are escaped."""
    match value:
        case JsonNumber():
            return str(value)
        case str():
            return f'"{_ESCAPED.sub(_escape, value)}"'
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return "[" + ",".join(map(compact, value)) + "]"
    return "{" + ",".join(f"{compact(name)}:{compact(each)}" for name, each in value.pairs) + "}"


def _escape(found: re.Match[str]) -> str:
    if (short := _SHORT.get(found[0])) is not None:
        return short
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))
