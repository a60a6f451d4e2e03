"""Keys or values in JSON as structs: by a typed decoder each, and value by value where it doesn't do.

A typed decoder is made for the columns (`msgspec`): what is not asked for is skipped without making objects, and what
is of another type than a column usually has is refused. A record that it refuses, and one with an unusual value, is
read again as values that have lost nothing (`schemas.codec.json.text`); that way has the last word on each record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrays import in_order
from schemas.codec.json.cells import JsonCell
from schemas.codec.json.text import FRAMED, Frames, may_exceed_limits, text_of
from schemas.codec.results import Flags, ReadStructs, Rows, bytes_in, flags_of, taken
from schemas.errors import Code, InputError
from schemas.json.tokens import FieldSchema, JsonError
from schemas.types import Value

_AT_ONCE = 4_096
"""Records that are decoded before their values become arrays: more would not stay in the CPU's cache."""
_REFUSALS = (msgspec.DecodeError, RecursionError, UnicodeError)

Schemas = Mapping[str, FieldSchema]
"""The schemas of the fields of a record in a frame, by name."""


class Shape(Protocol):
    """A typed decoder of records whose values have one form."""

    @property
    def decode(self) -> Callable[[bytes], Any]:
        """Raises: msgspec.DecodeError, RecursionError."""

    def structs(self, decoded: Sequence[Any]) -> tuple[pa.StructArray, Flags]:
        """The decoded records as structs, and flags for unusual values. A struct with a flag is arbitrary."""


class Slow(NamedTuple):
    """A record that was read value by value; `late` as in `ReadStructs`."""

    struct: dict[str, Any] | None
    late: JsonError | None = None


class JsonHalf(NamedTuple):
    """The key or the value of a record, for errors: its name, and the form that it has to have."""

    name: str
    form: str

    def error(self, reason: JsonError) -> InputError:
        """The error of a record whose key or value can't be read."""
        column = f" in column {reason.column}" if reason.column else ""
        if reason.code is Code.PK_NULL:
            return InputError(reason.code, found=str(reason))
        is_key = self.name == "a key" and reason.code is Code.JSON_MALFORMED
        code = Code.KEY_MISMATCH if is_key else reason.code
        values = {"column": reason.column} if reason.column else {}
        expected = None if reason.column or code is not Code.BAD_ENCODING else f"{self.form}, in UTF-8"
        return InputError(code, found=f"{self.name} with {reason}{column}", expected=expected, **values)


class JsonReader(ABC):
    """See `schemas.codec.results.StructReader`. For one thread: it remembers frames."""

    def __init__(self, kind: pa.StructType, half: JsonHalf, frames: Frames[Shape] | None) -> None:
        self.kind, self._half, self._frames = kind, half, frames
        self._plain = self.shape({})

    def shape(self, schemas: Schemas) -> Shape | None:
        """The typed decoder of records whose fields have these schemas; None where there is none for them."""
        try:
            return self.typed(schemas)
        except JsonError:
            return None

    @abstractmethod
    def typed(self, schemas: Schemas) -> Shape | None:
        """See `shape`. Raises: JsonError for schemas that are incompatible with the columns."""

    @abstractmethod
    def slowly(self, text: str) -> Slow:
        """Raises: JsonError."""

    def are_usual(self, texts: pa.StringArray) -> Flags:
        """False for a text that the typed decoder could take in another meaning."""
        return ~may_exceed_limits(texts)

    def read(self, records: pa.BinaryArray) -> ReadStructs:
        """Reads n keys or values, none of which is null."""
        errors, late = dict[int, JsonError](), dict[int, JsonError]()
        texts, is_read = _texts(records, errors), np.zeros(len(records), np.bool_)
        groups = list[tuple[Rows, pa.StructArray]]()
        for shape, rows, payloads in self._by_shape(texts):
            for start, is_typed, structs in _typed(shape, payloads, self.are_usual(payloads)):
                own = rows[start : start + len(is_typed)][is_typed]
                is_read[own] = True
                groups.append((own, structs))
        slow = dict[int, dict[str, Any] | None]()
        for row in np.flatnonzero(~is_read).tolist():
            if row not in errors:
                self._read_slowly(row, texts[row].as_py(), slow, errors, late)
        if slow or not groups:
            groups.append((np.array(list(slow), np.int64), pa.array(list(slow.values()), self.kind)))
        structs = in_order(groups, len(records))
        return ReadStructs(structs, *map(self._as_errors, (errors, late)))

    def _by_shape(self, texts: pa.StringArray) -> Iterator[tuple[Shape, Rows, pa.StringArray]]:
        """The rows of each typed decoder, with the texts that it decodes. A row that has none is left out."""
        rest = np.arange(len(texts))
        if self._frames is not None:
            is_framed = flags_of(pc.starts_with(texts, FRAMED))
            rest, framed = rest[~is_framed], rest[is_framed]
            given = texts.cast(pa.binary())
            for frame, own in self._frames.grouped(given, framed, self.shape):
                yield frame.shape, own, pc.binary_slice(taken(given, own), frame.size, -1).cast(pa.string())
        if self._plain is not None and len(rest):
            yield self._plain, rest, taken(texts, rest)

    def _read_slowly(
        self,
        row: int,
        text: str,
        slow: dict[int, dict[str, Any] | None],
        errors: dict[int, JsonError],
        late: dict[int, JsonError],
    ) -> None:
        try:
            found = self.slowly(text)
        except JsonError as reason:
            errors[row] = reason
            return
        slow[row] = found.struct
        if found.late is not None:
            late[row] = found.late

    def _as_errors(self, reasons: Mapping[int, JsonError]) -> dict[int, InputError]:
        return {row: self._half.error(reason) for row, reason in reasons.items()}


class JsonField(NamedTuple):
    """A column in objects: its names there, of which the first one that an object has counts, and its values' form.

    `fill` is its value where an object has none of them.
    """

    names: tuple[str, ...]
    cell: JsonCell
    fill: Value = None

    @property
    def is_plain(self) -> bool:
        """True where a missing field is the same as one that is null."""
        return len(self.names) == 1 and self.fill is None


class RowShape:
    """Rows of columns, each in one form. `exact`: objects have these fields, none of them null, and no other.

    `unless` are two fields of which a row has one at most: it may be something else with both. `unread`, where given,
    are the only further fields that objects have.
    """

    def __init__(
        self,
        kind: pa.StructType,
        columns: Sequence[JsonField],
        *,
        exact: bool = False,
        unless: Sequence[str] = (),
        unread: Sequence[str] | None = None,
    ) -> None:
        self._columns, self._kind, self._exact, self._unless = columns, kind, exact, bool(unless)
        # Where all fields have to be known, either of the two alone is a field like others, and no column.
        self._are_unusual = np.logical_and if unread is None else np.logical_or
        fields, names = list[Any](), list[str]()
        self._get = list[list[Callable[[Any], Any]]]()
        for column in columns:
            places = range(len(names), len(names) + len(column.names))
            fields += [
                _field(place, column.cell.kind, exact=exact, tells_absence=not column.is_plain)
                for place in places
            ]
            names += column.names
            self._get.append([attrgetter(f"c{place}") for place in places])
        for name in (*(each for each in unread or () if each not in unless), *unless):
            self._get.append([attrgetter(f"c{len(names)}")])
            fields.append(_field(len(names), msgspec.Raw, exact=False, tells_absence=False))
            names.append(name)
        self.type = msgspec.defstruct(
            "Row",
            fields,
            rename={f"c{index}": name for index, name in enumerate(names)},
            forbid_unknown_fields=exact or unread is not None,
            gc=False,
        )
        self.decode = msgspec.json.Decoder(self.type).decode

    def structs(self, decoded: Sequence[Any]) -> tuple[pa.StructArray, Flags]:
        unusual = np.zeros(len(decoded), np.bool_)
        if self._unless:
            one, other = (list(map(len, map(get, decoded))) for [get] in self._get[-2:])
            if any(one) or any(other):
                unusual |= self._are_unusual(one, other)
        arrays = []
        for column, gets, kind in zip(self._columns, self._get, self._kind, strict=False):
            found = [list(map(get, decoded)) for get in gets]
            if column.is_plain:
                array, fallback = finished(column.cell, found[0], kind.type)
            else:
                array, fallback = _with_fill(column, found, kind.type)
            arrays.append(array)
            if fallback is not None:
                unusual |= fallback
            if self._exact and array.null_count:
                unusual |= array.is_null().to_numpy(zero_copy_only=False)
        return pa.StructArray.from_arrays(arrays, fields=list(self._kind)), unusual


def _with_fill(
    column: JsonField, found: Sequence[Sequence[Any]], kind: pa.DataType
) -> tuple[pa.Array, Flags | None]:
    """The values by the first of a column's names that each object has, and the fill of those that have none."""
    values = list(found[0])
    for more in found[1:]:
        values = [each if _is_there(each) else other for each, other in zip(values, more, strict=True)]
    is_there = [_is_there(each) for each in values]
    if all(is_there):
        return finished(column.cell, values, kind)
    nothing = msgspec.Raw() if column.cell.kind is msgspec.Raw else None
    array, fallback = finished(column.cell, [each if _is_there(each) else nothing for each in values], kind)
    if column.fill is not None:
        array = pc.if_else(pa.array(is_there), array, pa.scalar(column.fill, kind))
    return array, fallback


def _is_there(value: Any) -> bool:
    """True for the value of a field that an object has, of which null is one."""
    return value is not msgspec.UNSET and not (isinstance(value, msgspec.Raw) and not len(value))


def can_be_typed(names: Sequence[str]) -> bool:
    """True if a typed decoder can have fields of these names: JSON has other ways to write the rest."""
    return not any(char in '"\\' or char < " " for name in names for char in name)


def _field(
    index: int, kind: Any, *, exact: bool, tells_absence: bool
) -> tuple[str, Any] | tuple[str, Any, Any]:
    """A field of a struct. `tells_absence`: one that is missing differs from one that is null."""
    name = f"c{index}"
    if exact:
        return name, kind
    if kind is msgspec.Raw:
        return name, kind, msgspec.Raw()
    return (name, kind | msgspec.UnsetType, msgspec.UNSET) if tells_absence else (name, kind, None)


def finished(cell: JsonCell, values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, Flags | None]:
    """Calls `cell.finish`, bisecting the values where it raises, until each value that it does not take is known."""
    try:
        return cell.finish(values)
    except (ValueError, OverflowError, pa.ArrowException):
        if len(values) == 1:
            return pa.nulls(1, kind), np.ones(1, np.bool_)
    middle = len(values) // 2
    halves = [finished(cell, part, kind) for part in (values[:middle], values[middle:])]
    flags = [np.zeros(len(array), np.bool_) if fallback is None else fallback for array, fallback in halves]
    return pa.concat_arrays([array for array, _ in halves]), np.concatenate(flags)


def _typed(
    shape: Shape, texts: pa.StringArray, are_usual: Flags
) -> Iterator[tuple[int, Flags, pa.StructArray]]:
    """Pieces of the texts: the start of each, flags for those that the typed decoder reads, and their structs."""
    for start in range(0, len(texts), _AT_ONCE):
        is_typed, chunk = are_usual[start : start + _AT_ONCE].copy(), texts.slice(start, _AT_ONCE)
        chosen = taken(chunk, np.flatnonzero(is_typed)).cast(pa.binary())
        given = bytes_in(chosen)
        try:
            decoded = list(map(shape.decode, given))
        except _REFUSALS:
            decoded, is_decoded = _one_by_one(shape, given)
            is_typed[is_typed] = is_decoded
        structs, are_unusual = shape.structs(decoded)
        if are_unusual.any():
            structs = structs.filter(pa.array(~are_unusual))
            is_typed[is_typed] = ~are_unusual
        yield start, is_typed, structs


def _one_by_one(shape: Shape, texts: Sequence[bytes]) -> tuple[list[Any], list[bool]]:
    """The decoded texts without the refused ones, and a flag for each text: True if it was decoded."""
    decoded, taken = list[Any](), list[bool]()
    for text in texts:
        try:
            decoded.append(shape.decode(text))
        except _REFUSALS:
            taken.append(False)
        else:
            taken.append(True)
    return decoded, taken


def _texts(records: pa.BinaryArray, errors: dict[int, JsonError]) -> pa.StringArray:
    """The records as texts, empty ones for those that are not UTF-8."""
    try:
        return records.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    texts = []
    for row, data in enumerate(records.to_pylist()):
        try:
            texts.append(text_of(data))
        except JsonError as reason:
            errors[row] = reason
            texts.append("")
    return pa.array(texts, pa.string())
