"""Keys or values in JSON as structs: by a typed decoder each, and value by value where it doesn't do.

A typed decoder is made for the columns (`msgspec`): what is not asked for is skipped without making objects, and what is
of another type than a column usually has is refused. A record that it refuses, and one with an unusual value, is read
again as values that have lost nothing (`schemas.codec.json_text`); that way has the last word on each record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from schemas.codec.json_cells import JsonCell
from schemas.codec.json_frames import FRAMED, Frames
from schemas.codec.json_text import may_exceed_limits, text_of
from schemas.codec.results import Flags, ReadStructs
from schemas.errors import Code, InputError
from schemas.json.parsing.field_schemas import FieldSchema
from schemas.json.parsing.tokens import JsonError

Schemas = Mapping[str, FieldSchema]
"""Those of a record's fields, of a record in a frame."""


class Shape(Protocol):
    """A typed decoder of records whose values have one form."""

    @property
    def decode(self) -> Callable[[str], Any]:
        """Raises: msgspec.DecodeError, RecursionError."""

    def structs(self, decoded: Sequence[Any]) -> tuple[pa.StructArray, Flags]:
        """What was decoded as structs, and which have an unusual value. Arbitrary for those."""


class Slow(NamedTuple):
    """A record that was read value by value; `late` as in `ReadStructs`."""

    struct: dict[str, Any] | None
    late: JsonError | None = None


class JsonHalf(NamedTuple):
    """The half of a record, for errors: its name, and the form that it has to have."""

    name: str
    form: str

    def error(self, reason: JsonError) -> InputError:
        """The error of a record whose half can't be read."""
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

    def is_usual(self, text: str) -> bool:
        """False for a text that the typed decoder could take in another meaning."""
        return not may_exceed_limits(text)

    def read(self, records: pa.BinaryArray) -> ReadStructs:
        """Of n keys or values, none of which is null."""
        errors = dict[int, JsonError]()
        texts = _texts(records, errors)
        groups = self._decoded(texts)
        late, slow = dict[int, JsonError](), dict[int, dict[str, Any] | None]()
        parts, places = [], np.full(len(texts), -1, np.int64)
        start = 0
        for shape, group in groups.items():
            structs, unusual = shape.structs(group.decoded)
            rows = np.array(group.rows, np.int64)
            places[rows] = np.arange(start, start + len(rows))
            places[rows[unusual]] = -1
            parts, start = [*parts, structs], start + len(rows)
        for row in np.flatnonzero(places < 0).tolist():
            if row not in errors:
                self._read_slowly(row, texts[row], slow, errors, late)
        if slow:
            places[list(slow)] = np.arange(start, start + len(slow))
            parts.append(pa.array(list(slow.values()), self.kind))
        return ReadStructs(self._taken(parts, places), *map(self._as_errors, (errors, late)))

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

    def _decoded(self, texts: Sequence[str]) -> dict[Shape, _Group]:
        """What typed decoders make of the texts; those that are in no group they refuse."""
        groups, plain = dict[Shape, _Group](), self._plain
        for row, text in enumerate(texts):
            shape = plain
            if self._frames is not None and text.startswith(FRAMED):
                if (frame := self._frames.frame_of(text, self.shape)) is None:
                    continue
                shape, text = frame.shape, frame.payload(text)
            if shape is None or not self.is_usual(text):
                continue
            try:
                decoded = shape.decode(text)
            except (msgspec.DecodeError, RecursionError, UnicodeError):
                continue
            group = groups.get(shape) or groups.setdefault(shape, _Group([], []))
            group.rows.append(row)
            group.decoded.append(decoded)
        return groups

    def _taken(self, parts: Sequence[pa.StructArray], places: Any) -> pa.StructArray:
        if len(parts) == 1 and len(parts[0]) == len(places) and (places >= 0).all():
            return parts[0]
        held = pa.concat_arrays(parts) if parts else pa.nulls(0, self.kind)
        return held.take(pa.array(places, mask=places < 0)) if len(held) else pa.nulls(len(places), self.kind)

    def _as_errors(self, reasons: Mapping[int, JsonError]) -> dict[int, InputError]:
        return {row: self._half.error(reason) for row, reason in reasons.items()}


class _Group(NamedTuple):
    rows: list[int]
    decoded: list[Any]


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

    def structs(self, decoded: Sequence[Any]) -> tuple[pa.StructArray, Flags]:
        unusual = np.zeros(len(decoded), np.bool_)
        columns = list(zip(*map(msgspec.structs.astuple, decoded), strict=True))
        if self._unless:
            *columns, one, other = columns
            unusual |= [len(a) > 0 and len(b) > 0 for a, b in zip(one, other, strict=True)]
        arrays = []
        for cell, values, kind in zip(self._cells, columns, self._kind, strict=True):
            array, odd = finished(cell, values, kind.type)
            arrays.append(array)
            if odd is not None:
                unusual |= odd
            if self._exact and array.null_count:
                unusual |= array.is_null().to_numpy(zero_copy_only=False)
        return pa.StructArray.from_arrays(arrays, fields=list(self._kind)), unusual


def _field(index: int, kind: Any, *, exact: bool) -> tuple[str, Any] | tuple[str, Any, Any]:
    name = f"c{index}"
    if kind is msgspec.Raw:
        return (name, kind) if exact else (name, kind, msgspec.Raw())
    return (name, kind) if exact else (name, kind, None)


def finished(cell: JsonCell, values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, Flags | None]:
    """`cell.finish`, in halves where it raises, until each value that it does not take is known."""
    try:
        return cell.finish(values)
    except (ValueError, OverflowError, pa.ArrowException):
        if len(values) == 1:
            return pa.nulls(1, kind), np.ones(1, np.bool_)
    middle = len(values) // 2
    halves = [finished(cell, part, kind) for part in (values[:middle], values[middle:])]
    flags = [np.zeros(len(array), np.bool_) if odd is None else odd for array, odd in halves]
    return pa.concat_arrays([array for array, _ in halves]), np.concatenate(flags)


def _texts(records: pa.BinaryArray, errors: dict[int, JsonError]) -> list[str]:
    try:
        return list(records.cast(pa.string()).to_pylist())
    except pa.ArrowInvalid:
        pass
    texts = []
    for row, data in enumerate(records.to_pylist()):
        try:
            texts.append(text_of(data))
        except JsonError as reason:
            errors[row] = reason
            texts.append("")
    return texts
