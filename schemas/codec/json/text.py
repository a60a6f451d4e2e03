"""Records in JSON as values that have lost nothing: what RFC 8259 allows and nothing else, within limits.

This is the way of records that typed decoders refuse, or take in another meaning than a column has. Around a key or
value may be the frame of Kafka Connect, `{"schema": ..., "payload": ...}`. It is ten times as long as most rows, and
the same in most records: one that was seen is compared and not read again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec.results import Flags, Rows, bytes_in, flags_of, taken
from schemas.errors import Code
from schemas.json.tokens import (
    MAX_DEPTH,
    MAX_NAME,
    MAX_NUMBER,
    Fields,
    FieldSchema,
    JsonError,
    Kind,
    Token,
    field_schemas,
)

# The parser, and what goes over its values, need a frame for each of MAX_DEPTH objects within each other; how many are
# left must not decide about a record.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 5 * MAX_DEPTH))

_SIGNIFICANT = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_AS_ZEROS = bytes(ord("0") if chr(byte) in "0123456789" else ord(" ") for byte in range(256))
_MANY_DIGITS = b"0" * (MAX_NUMBER // 4 - 2)
"""A number that is too long has as many in a row: it has three parts at most, and few signs between them."""
_SHORT = min(MAX_DEPTH, MAX_NUMBER)
"""Bytes of a text from which on it may exceed a limit."""
_IN_A_ROW = 4
_STRIDE = len(_MANY_DIGITS) // _IN_A_ROW
"""Of bytes so far apart at least so many in a row are among as many digits."""
_PLAIN = {
    None: Token(Kind.NULL, "null"),
    True: Token(Kind.BOOLEAN, "true"),
    False: Token(Kind.BOOLEAN, "false"),
}


def may_exceed_limits(texts: pa.StringArray) -> Flags:
    """Flags, False for all texts within the limits but few; no text is null."""
    flags = np.zeros(len(texts), np.bool_)
    rows = np.flatnonzero(pc.greater_equal(pc.binary_length(texts), _SHORT).to_numpy(zero_copy_only=False))
    if not len(rows):
        return flags
    long = taken(texts, rows)
    given = bytes_in(long.cast(pa.binary()))
    flags[rows] = [len(each) > MAX_NAME or each.count(b"{") + each.count(b"[") >= MAX_DEPTH for each in given]
    for row in _may_have_many_digits(long):
        flags[rows[row]] |= _MANY_DIGITS in given[row].translate(_AS_ZEROS)
    return flags


def _may_have_many_digits(texts: pa.StringArray) -> Rows:
    """The rows of all texts with so many digits in a row, and of few others."""
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    sampled = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1] : _STRIDE]
    is_digit = (sampled >= ord("0")) & (sampled <= ord("9"))
    in_a_row = np.logical_and.reduce(
        [is_digit[skip : len(is_digit) - _IN_A_ROW + 1 + skip] for skip in range(_IN_A_ROW)]
    )
    places = offsets[0] + _STRIDE * np.flatnonzero(in_a_row)
    return np.unique(np.searchsorted(offsets, places, side="right") - 1)


def read_value(text: str) -> Token:
    """The value that a text is; one that may stand in an object. Raises: JsonError."""
    return _read(text, MAX_DEPTH - 1)


def read_object(text: str) -> Fields:
    """The fields of the object that a text is. Raises: JsonError."""
    return fields_in(_read(text, MAX_DEPTH))


def _read(text: str, max_depth: int) -> Token:
    if text.count("{") + text.count("[") > max_depth:
        _check_depth(text, max_depth)
    try:
        return _token(_DECODER.decode(text))
    except JsonError:
        raise
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "no value"
        raise JsonError(f"text that is no JSON ({reason[0].lower()}{reason[1:]})") from None


def fields_in(token: Token) -> Fields:
    """The fields of an object. Raises: JsonError for any other value, a text that holds one, too."""
    if token.fields is None:
        raise JsonError("no object where one has to be")
    return token.fields


def text_of(data: bytes) -> str:
    """Bytes in UTF-8. Raises: JsonError(BAD_ENCODING)."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise JsonError("bytes that are not UTF-8", Code.BAD_ENCODING) from None


def _check_depth(text: str, max_depth: int) -> None:
    depth = 0
    for found in _SIGNIFICANT.finditer(text):
        if found[0] in "[{":
            depth += 1
            if depth > max_depth:
                raise JsonError(f"more than {max_depth} objects and lists in each other")
        elif found[0] in "]}":
            depth -= 1


def _token(value: Any) -> Token:
    if type(value) is Token:
        return value
    if type(value) is str:
        return Token(Kind.TEXT, value)
    if type(value) is list:
        return Token(Kind.NESTED, None, items=[_token(each) for each in value])
    return _PLAIN[value]


def _object(pairs: list[tuple[str, Any]]) -> Token:
    fields: Fields = []
    for name, value in pairs:
        if len(name) > MAX_NAME:
            raise JsonError(f"a name of more than {MAX_NAME} characters")
        fields.append((name, Token(Kind.TEXT, value) if type(value) is str else _token(value)))
    return Token(Kind.NESTED, None, fields)


def _number(kind: Kind, digits: str) -> Token:
    if len(digits) > MAX_NUMBER:
        raise JsonError(f"a number of more than {MAX_NUMBER} characters")
    return Token(kind, digits)


def _refuse(_: str) -> NoReturn:
    raise JsonError("text that is no JSON (NaN or an infinity)")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=lambda digits: _number(Kind.INTEGER, digits),
    parse_float=lambda digits: _number(Kind.FRACTION, digits),
    parse_constant=_refuse,
)


FRAMED = '{"schema"'
"""The first bytes of a key or value that comes with its schema, as Kafka Connect writes it."""
FRAME_PARTS = ("schema", "payload")
_PAYLOAD = '"payload":'
_MOST_FRAMES = 64
"""The number of frames that are remembered: one for each table and version of it."""
_MOST_GROUPS = 8
"""Frames of one block by which its records are grouped: each is a pass over all records that are left."""
_MISSING = Token(Kind.BOOLEAN, "false")
"""The marker for a missing payload: neither an object nor null."""

ShapeT = TypeVar("ShapeT")


@dataclass(frozen=True)
class Frame(Generic[ShapeT]):
    """The text before a payload, and how payloads with the schemas in it are decoded."""

    begin: str
    shape: ShapeT

    def holds(self, text: str) -> bool:
        """True if a text has this frame, as far as can be seen without reading its payload."""
        return text.startswith(self.begin) and text.endswith("}")

    @property
    def size(self) -> int:
        """Bytes before the payload."""
        return len(self.begin.encode())


@dataclass
class Frames(Generic[ShapeT]):
    """The frames of the keys or values of a topic. `image`: the field whose schema describes the columns."""

    image: str | None = None
    _last: Frame[ShapeT] | None = None
    _known: dict[str, Frame[ShapeT] | None] = field(default_factory=dict)

    def frame_of(
        self, text: str, shape: Callable[[Mapping[str, FieldSchema]], ShapeT | None]
    ) -> Frame[ShapeT] | None:
        """The frame of a text that begins as one; None where it is not certain, or has no shape."""
        if self._last is not None and self._last.holds(text):
            return self._last
        begin = "".join(text.partition(_PAYLOAD)[:2])
        if begin not in self._known:
            if len(self._known) >= _MOST_FRAMES:
                self._known.clear()
            schemas = schemas_before(begin, self.image)
            made = None if schemas is None else shape(schemas)
            self._known[begin] = None if made is None else Frame(begin, made)
        found = self._known[begin]
        if found is None or not found.holds(text):
            return None
        self._last = found
        return found

    def grouped(
        self,
        records: pa.BinaryArray,
        rows: Rows,
        shape: Callable[[Mapping[str, FieldSchema]], ShapeT | None],
    ) -> Iterator[tuple[Frame[ShapeT], Rows]]:
        """The rows of each frame, of `rows` that begin as one. A row that is in no group is to be read alone."""
        for _ in range(_MOST_GROUPS):
            if not len(rows):
                return
            frame = self.frame_of(records[int(rows[0])].as_py().decode(errors="replace"), shape)
            if frame is None:
                rows = rows[1:]
                continue
            own = taken(records, rows)
            is_same = flags_of(pc.and_(pc.starts_with(own, frame.begin), pc.ends_with(own, "}")))
            yield frame, rows[is_same]
            rows = rows[~is_same]


def schemas_before(begin: str, image: str | None) -> Mapping[str, FieldSchema] | None:
    """The schemas in the text before a payload; None if it is not certain that the payload begins behind it."""
    try:
        parts = read_object(begin + "null}")
        if tuple(name for name, _ in parts) != FRAME_PARTS or parts[1][1].kind is not Kind.NULL:
            return None
        return field_schemas(parts[0][1], image)
    except JsonError:
        return None


def unframed(fields: Fields, image: str | None) -> tuple[Fields | None, Mapping[str, FieldSchema]]:
    """The fields of a frame's payload, None for null, and their schemas.

    Raises: JsonError; SCHEMA_INCOMPATIBLE as `field_schemas`.
    """
    parts = dict(fields)
    if len(parts) < len(fields):
        raise JsonError("a part of its frame that comes twice")
    schemas = field_schemas(parts["schema"], image)
    payload = parts.get("payload", _MISSING)
    return (None if payload.kind is Kind.NULL else fields_in(payload)), schemas


def is_frame(fields: Fields) -> bool:
    """True if an object is a frame and nothing else."""
    return len(fields) == len(FRAME_PARTS) and {name for name, _ in fields} == set(FRAME_PARTS)
