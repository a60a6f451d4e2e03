"""JSON texts as Python values in which no number loses a digit: RFC 8259 by `json`, and what it lets pass refused.

object          tuple of its names and values in their order, also those whose name comes twice
list            list
number          int; with a fraction or an exponent, and for -0, `JsonNumber`: the characters that were written
text            str
true, false     bool
null            None
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from schemas.errors import Code
from streaming.reading.values.invalid import InvalidRecordError

MAX_DEPTH, MAX_NAME, MAX_NUMBER = 999, 50_000, 1_000
"""Objects and lists in each other, and characters of each (docs/formats.md#json-values)."""
_SHALLOW, STACK_FRAMES = 200, 5_000
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BLANKS = " \t\n\r"
_ESCAPED = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}

JsonObject = tuple[tuple[str, Any], ...]


class JsonNumber(str):
    """A number by its characters."""

    __slots__ = ()


def _real(digits: str) -> JsonNumber:
    if len(digits) > MAX_NUMBER:
        raise ValueError(f"a number of more than {MAX_NUMBER} characters")
    return JsonNumber(digits)


def _whole(digits: str) -> int | JsonNumber:
    number = _real(digits)
    return number if digits == "-0" else int(digits)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word}, which is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=_whole, parse_float=_real, parse_constant=_refuse
)


def text_of(data: bytes) -> str:
    """Bytes in UTF-8. Raises: InvalidRecordError(BAD_ENCODING)."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidRecordError("bytes that are not UTF-8", Code.BAD_ENCODING) from None


def parsed(text: str) -> Any:
    """The one value that a text is. Raises: InvalidRecordError."""
    may_be_deep = text.count("{") + text.count("[") > _SHALLOW
    if may_be_deep:
        # `json` takes a frame of Python's stack for each level, and so does what goes over its result.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), STACK_FRAMES))
    text = text.strip(_BLANKS)
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        value, end = None, -1
    if end < len(text):
        raise InvalidRecordError("text that is no JSON within the limits")
    if may_be_deep and _is_too_deep(value, MAX_DEPTH):
        raise InvalidRecordError(f"more than {MAX_DEPTH} objects and lists in each other")
    if len(text) > MAX_NAME and _has_long_name(value):
        raise InvalidRecordError(f"a name of more than {MAX_NAME} characters")
    return value


def as_object(value: Any) -> JsonObject:
    """A value that has to be an object. Raises: InvalidRecordError."""
    if type(value) is not tuple:
        raise InvalidRecordError("no object where one has to be")
    return value


def names_of(value: JsonObject) -> list[str]:
    """The names in their order, those that come twice included."""
    return [name for name, _ in value]


def _is_too_deep(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [each for one in level for each in _inside(one) if isinstance(each, tuple | list)]
        if not level:
            return False
    return True


def _has_long_name(value: Any) -> bool:
    is_long = isinstance(value, tuple) and any(len(name) > MAX_NAME for name in names_of(value))
    return is_long or any(map(_has_long_name, _inside(value)))


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple):
        return [each for _, each in value]
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
        case int():
            return str(value)
        case list():
            return "[" + ",".join(map(compact, value)) + "]"
    return "{" + ",".join(f"{compact(name)}:{compact(each)}" for name, each in value) + "}"


def _escape(found: re.Match[str]) -> str:
    if (short := _SHORT.get(found[0])) is not None:
        return short
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))
