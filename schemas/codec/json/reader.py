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
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec.json.cells import JsonCell
from schemas.codec.json.frames import FRAMED, Frames
from schemas.codec.json.text import SHORT, may_exceed_limits, text_of
from schemas.codec.results import Flags, ReadStructs
from schemas.errors import Code, InputError
from schemas.json.parsing.field_schemas import FieldSchema
from schemas.json.parsing.tokens import JsonError

_AT_ONCE = 4_096
"""Records that are decoded before their values become arrays: more would not stay in the CPU's cache."""
_REFUSALS = (msgspec.DecodeError, RecursionError, UnicodeError)

Rows = npt.NDArray[np.int64]
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

    @abstractmethod
    def shape(self, schemas: Schemas) -> Shape | None:
        """The typed decoder of records whose fields have these schemas; None where there is none for them."""

    @abstractmethod
    def slowly(self, text: str) -> Slow:
        """Raises: JsonError."""

    def are_usual(self, texts: pa.StringArray) -> Flags:
        """False for a text that the typed decoder could take in another meaning."""
        usual = np.ones(len(texts), np.bool_)
        lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(lengths >= SHORT):
            usual[row] = not may_exceed_limits(texts[int(row)].as_py())
        return usual

    def read(self, records: pa.BinaryArray) -> ReadStructs:
        """Reads n keys or values, none of which is null."""
        errors, late = dict[int, JsonError](), dict[int, JsonError]()
        texts, count = _texts(records, errors), len(records)
        parts, places, start = list[pa.StructArray](), np.full(count, -1, np.int64), 0
        for shape, rows, payloads in self._by_shape(texts):
            structs, is_typed = _typed(shape, payloads, self.are_usual(payloads))
            own = rows[is_typed]
            places[own] = np.arange(start, start + len(own))
            parts, start = [*parts, *structs], start + len(own)
        slow = dict[int, dict[str, Any] | None]()
        for row in np.flatnonzero(places < 0).tolist():
            if row not in errors:
                self._read_slowly(row, texts[row].as_py(), slow, errors, late)
        if slow:
            places[list(slow)] = np.arange(start, start + len(slow))
            parts.append(pa.array(list(slow.values()), self.kind))
        return ReadStructs(self._taken(parts, places), *map(self._as_errors, (errors, late)))

    def _by_shape(self, texts: pa.StringArray) -> Iterator[tuple[Shape, Rows, pa.StringArray]]:
        """The rows of each typed decoder, with the texts that it decodes. A row that has none is left out."""
        rest = np.arange(len(texts))
        if self._frames is not None:
            framed = _flags(pc.starts_with(texts, FRAMED))
            rest, rows = rest[~framed], rest[framed]
            while len(rows):
                first = texts[int(rows[0])].as_py()
                frame = self._frames.frame_of(first, self.shape)
                if frame is None:
                    rows = rows[1:]
                    continue
                own = _some(texts, rows)
                same = _flags(pc.and_(pc.starts_with(own, frame.begin), pc.ends_with(own, "}")))
                payloads = pc.binary_slice(_some(own, np.flatnonzero(same)).cast(pa.binary()), frame.size, -1)
                yield frame.shape, rows[same], payloads.cast(pa.string())
                rows = rows[~same]
        if self._plain is not None and len(rest):
            yield self._plain, rest, _some(texts, rest)

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

    def _taken(self, parts: Sequence[pa.StructArray], places: Any) -> pa.StructArray:
        held = pa.concat_arrays(parts) if parts else pa.nulls(0, self.kind)
        if len(held) == len(places) and np.array_equal(places, np.arange(len(places))):
            return held
        return held.take(pa.array(places, mask=places < 0)) if len(held) else pa.nulls(len(places), self.kind)

    def _as_errors(self, reasons: Mapping[int, JsonError]) -> dict[int, InputError]:
        return {row: self._half.error(reason) for row, reason in reasons.items()}


class RowShape:
    """Rows of columns, each in one form. `exact`: objects have these fields, none of them null, and no other.

    `unless` are two fields of which a row has one at most: it may be something else with both.
    """

    def __init__(
        self,
        kind: pa.StructType,
        names: Sequence[str],
        cells: Sequence[JsonCell],
        *,
        exact: bool = False,
        unless: Sequence[str] = (),
    ) -> None:
        self._cells, self._kind, self._exact, self._unless = cells, kind, exact, bool(unless)
        names = [*names, *unless]
        kinds = [*(cell.kind for cell in cells), *(msgspec.Raw for _ in unless)]
        fields = [_field(index, each, exact=exact) for index, each in enumerate(kinds)]
        self.type = msgspec.defstruct(
            "Row",
            fields,
            rename={f"c{index}": name for index, name in enumerate(names)},
            forbid_unknown_fields=exact,
            gc=False,
        )
        self.decode = msgspec.json.Decoder(self.type).decode
        self._get = [attrgetter(f"c{index}") for index in range(len(names))]

    def structs(self, decoded: Sequence[Any]) -> tuple[pa.StructArray, Flags]:
        unusual = np.zeros(len(decoded), np.bool_)
        if self._unless:
            one, other = (list(map(len, map(get, decoded))) for get in self._get[-2:])
            if any(one) and any(other):
                unusual |= np.logical_and(one, other)
        arrays = []
        for cell, get, kind in zip(self._cells, self._get, self._kind, strict=False):
            array, odd = finished(cell, list(map(get, decoded)), kind.type)
            arrays.append(array)
            if odd is not None:
                unusual |= odd
            if self._exact and array.null_count:
                unusual |= array.is_null().to_numpy(zero_copy_only=False)
        return pa.StructArray.from_arrays(arrays, fields=list(self._kind)), unusual


def can_be_typed(names: Sequence[str]) -> bool:
    """True if a typed decoder can have fields of these names: JSON has other ways to write the rest."""
    return not any(char in '"\\' or char < " " for name in names for char in name)


def _field(index: int, kind: Any, *, exact: bool) -> tuple[str, Any] | tuple[str, Any, Any]:
    name = f"c{index}"
    if kind is msgspec.Raw:
        return (name, kind) if exact else (name, kind, msgspec.Raw())
    return (name, kind) if exact else (name, kind, None)


def finished(cell: JsonCell, values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, Flags | None]:
    """Calls `cell.finish`, bisecting the values where it raises, until each value that it does not take is known."""
    try:
        return cell.finish(values)
    except (ValueError, OverflowError, pa.ArrowException):
        if len(values) == 1:
            return pa.nulls(1, kind), np.ones(1, np.bool_)
    middle = len(values) // 2
    halves = [finished(cell, part, kind) for part in (values[:middle], values[middle:])]
    flags = [np.zeros(len(array), np.bool_) if odd is None else odd for array, odd in halves]
    return pa.concat_arrays([array for array, _ in halves]), np.concatenate(flags)


def _typed(shape: Shape, texts: pa.StringArray, usual: Flags) -> tuple[list[pa.StructArray], Flags]:
    """Structs of the texts that the typed decoder reads, in order; and which these are."""
    parts, is_typed = list[pa.StructArray](), usual.copy()
    for start in range(0, len(texts), _AT_ONCE):
        own = is_typed[start : start + _AT_ONCE]
        chunk = texts.slice(start, _AT_ONCE)
        chosen = chunk if own.all() else chunk.filter(pa.array(own))
        given = chosen.cast(pa.binary()).to_numpy(zero_copy_only=False).tolist()  # far faster than to_pylist
        try:
            decoded = list(map(shape.decode, given))
        except _REFUSALS:
            decoded, taken = _one_by_one(shape, given)
            own[np.flatnonzero(own)] = taken
        if decoded:
            structs, unusual = shape.structs(decoded)
            if unusual.any():
                own[np.flatnonzero(own)[unusual]] = False
                structs = structs.filter(pa.array(~unusual))
            parts.append(structs)
    return parts, is_typed


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


def _some(texts: pa.StringArray, rows: Rows) -> pa.StringArray:
    return texts if len(rows) == len(texts) else texts.take(pa.array(rows))


def _flags(found: pa.BooleanArray) -> Flags:
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


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
