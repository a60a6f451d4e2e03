"""Columnar texts under construction: pieces, which one join copies row by row into a single buffer.

A join takes time for each piece rather than for each byte, so pieces that stand side by side become one where that is
cheap: constants with each other, and with what has one width in all rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrays import binary

Integers = npt.NDArray[np.signedinteger[Any]]
Words = npt.NDArray[np.unsignedinteger]
"""A short text of each row: its bytes as one integer of 1, 2, 4 or 8 bytes."""

_EMPTY = pa.scalar(b"", pa.binary())
_MAX_OFFSET = 2**31 - 1
_LONG = 512
"""Bytes of constants in a row from which on Arrow's own join is the faster one."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Texts of one width: constant parts, which all rows share, and parts of each row, side by side."""

    template: bytes
    fields: tuple[tuple[int, Words], ...]

    @classmethod
    def of(cls, *parts: str | Words) -> Fixed:
        """The parts side by side."""
        whole = cls(b"", ())
        for part in parts:
            each = part.encode() if isinstance(part, str) else cls(bytes(part.itemsize), ((0, part),))
            whole = whole.then(each)
        return whole

    def then(self, other: Fixed | bytes) -> Fixed:
        """Both, side by side."""
        if isinstance(other, bytes):
            return Fixed(self.template + other, self.fields)
        width = len(self.template)
        moved = tuple((width + place, words) for place, words in other.fields)
        return Fixed(self.template + other.template, self.fields + moved)

    def texts(self) -> pa.BinaryArray:
        """The text of each row."""
        length, width = len(self.fields[0][1]), len(self.template)
        if length * width > _MAX_OFFSET:
            raise pa.ArrowCapacityError(f"{length} rows at once are too many for 32-bit offsets")
        places, words = zip(*self.fields, strict=True)
        names = [str(place) for place in places]
        line: Any = {
            "names": names,
            "formats": [each.dtype for each in words],
            "offsets": places,
            "itemsize": width,
        }
        matrix = np.empty((length, width), np.uint8)
        matrix[:] = np.frombuffer(self.template, np.uint8)
        lines = matrix.view(np.dtype(line))[:, 0]
        for name, each in zip(names, words, strict=True):
            lines[name] = each
        return binary(matrix, np.arange(0, (length + 1) * width, width, dtype=np.int32))


Piece: TypeAlias = bytes | pa.BinaryArray | Fixed
"""A constant that all rows share, texts of one width, or any text of each row."""


def join(pieces: Iterable[Piece], *, null: bytes = b"") -> pa.BinaryArray:
    """The pieces joined row by row, with `null` for what is null. At least one piece must not be a constant."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and not isinstance(piece, pa.Array) and not isinstance(merged[-1], pa.Array):
            merged[-1] = _side_by_side(merged[-1], piece)
        else:
            merged.append(piece)
    parts = [_ready(piece) for piece in merged]
    if len(parts) == 1 and not parts[0].null_count:
        return parts[0]
    if sum(len(part.as_py()) for part in parts if isinstance(part, pa.Scalar)) > _LONG:
        return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=null)
    return _interleaved(parts, null)


def _interleaved(parts: list[pa.Array | pa.Scalar], null: bytes) -> pa.BinaryArray:
    """Pieces joined row by row, in two thirds of the time of Arrow's `binary_join_element_wise` if they are short.

    All pieces are put into one array, a constant once, from which each row's are taken side by side: that they are a
    row is then a matter of offsets.
    """
    held = [
        *(pa.array([each.as_py()]) if isinstance(each, pa.Scalar) else each for each in parts),
        pa.array([null]),
    ]
    starts = np.cumsum([0, *map(len, held)])
    length = max(len(each) for each in parts if isinstance(each, pa.Array))
    most = sum(length * len(part.as_py()) if isinstance(part, pa.Scalar) else _size(part) for part in parts)
    if max(most + length * len(parts) * len(null), int(starts[-1])) > _MAX_OFFSET:
        raise pa.ArrowCapacityError("2 GiB or more in one array")
    rows = np.arange(length, dtype=np.int32)
    taken = np.empty((length, len(parts)), np.int32)
    for index, (part, start) in enumerate(zip(parts, starts[:-1].astype(np.int32), strict=False)):
        taken[:, index] = start if isinstance(part, pa.Scalar) else rows + start
        if isinstance(part, pa.Array) and part.null_count:
            taken[~part.is_valid().to_numpy(zero_copy_only=False), index] = starts[-2]
    found = pc.take(pa.concat_arrays(held), pa.array(taken.reshape(-1)), boundscheck=False)
    offsets = np.frombuffer(found.buffers()[1], np.int32, taken.size + 1)[:: len(parts)]
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), found.buffers()[2]]
    return pa.Array.from_buffers(pa.binary(), length, buffers)


def _size(texts: pa.BinaryArray) -> int:
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)
    return int(offsets[-1]) - int(offsets[0])


def _side_by_side(left: bytes | Fixed, right: bytes | Fixed) -> bytes | Fixed:
    if isinstance(left, Fixed):
        return left.then(right)
    return left + right if isinstance(right, bytes) else Fixed(left, ()).then(right)


def _ready(piece: Piece) -> pa.Array | pa.Scalar:
    if isinstance(piece, bytes):
        return pa.scalar(piece, pa.binary())
    return piece.texts() if isinstance(piece, Fixed) else piece


def raw(array: pa.Array, kind: type[np.int32] | type[np.int64]) -> Integers:
    """Values as whole numbers, the lowest word of wider ones; 0 where one is null."""
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8, width * len(array), width * array.offset)
    found = cast("Integers", data.view(kind).reshape(len(array), -1)[:, 0])
    if array.null_count:
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), found, kind(0))
    return found


def null_where(array: pa.Array, texts: pa.BinaryArray) -> pa.BinaryArray:
    """These texts, null where `array` is."""
    bits = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    return pa.Array.from_buffers(pa.binary(), len(texts), [pa.py_buffer(bits), *texts.buffers()[1:]])
