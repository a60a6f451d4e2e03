"""Texts, columnar: days, instants and decimals in ISO 8601 and in digits, and bytes in base64 (RFC 4648, with padding).

Only the usual forms are read; what else a text may mean is read by `schemas.json.values`. Each reading function has,
beside the array, flags for the texts of other forms, whose values are arbitrary.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrays import binary
from schemas.json.digits import MAX_NARROW
from schemas.json.pieces import raw
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, ColumnType, TypeName

Flags = npt.NDArray[np.bool_]

_FOURTH = "0[48]|[2468][048]|[13579][26]"
_LEAP_YEAR = f"[0-9]{{2}}(?:{_FOURTH})|(?:{_FOURTH}|00)00"
_DAY = (
    r"(?:[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    rf"|(?:0[13578]|1[02])-31)|(?:{_LEAP_YEAR})-02-29)"
)
"""A day that there is, so that no cast meets another one."""
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
DATE, ISO_DATE, INSTANT = rf"^{_DAY}$", rf"^{_DAY}Z?$", rf"^{_DAY}T{_TIME}Z$"
"""Forms of dates, the second as Debezium has it, and of instants."""


def times(texts: pa.StringArray, kind: ColumnType, form: str) -> tuple[pa.Array, Flags]:
    """Reads days like `2026-01-31`, or instants like `2026-01-31T12:00:00.5Z`, by the type's name."""
    texts, unusual = _of_form(texts, form)
    if kind.name is TypeName.DATE:
        found = pc.utf8_slice_codeunits(texts, 0, 10).cast(kind.arrow)
        return found, unusual | outside(found.view(pa.int32()), FIRST_DAY, LAST_DAY)
    found = texts.cast(kind.arrow)
    return found, unusual | outside(found.view(pa.int64()), FIRST_US, LAST_US)


def decimals(texts: pa.StringArray, kind: ColumnType) -> tuple[pa.Decimal128Array, Flags]:
    """Reads decimals like `-12.50`."""
    # Arrow's cast lets some numbers of too many digits wrap around.
    scale = kind.scale or 0
    whole = (kind.precision or 0) - scale
    before_point = f"0|[1-9][0-9]{{0,{whole - 1}}}" if whole else "0"
    behind = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    texts, unusual = _of_form(texts, rf"^-?(?:{before_point}){behind}$")
    return texts.cast(kind.arrow), unusual


def unsigned(numbers: pa.Int64Array, kind: ColumnType) -> pa.Decimal128Array:
    """Converts unsigned numbers of 64 bits that were read as signed ones."""
    return numbers.view(pa.uint64()).cast(pa.decimal128(20, 0)).cast(kind.arrow)


def outside(numbers: pa.Array, least: int, most: int) -> Flags:
    """Flags for numbers below or above."""
    found: npt.NDArray[Any] = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return (found < least) | (found > most)


def _of_form(texts: pa.StringArray, pattern: str) -> tuple[pa.StringArray, Flags]:
    """The texts of this form, null for others; and which are those."""
    is_usual = pc.match_substring_regex(texts, pattern)
    unusual = np.asarray(pc.invert(is_usual).fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    return (pc.if_else(is_usual, texts, None) if unusual.any() else texts), unusual


Bytes = npt.NDArray[np.uint8]

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_MAX_OFFSET = 2**31 - 1
_PAD, _NONE = 64, 255


def base64_texts(array: pa.BinaryArray) -> pa.BinaryArray:
    """The text of each value, an empty one where it is null.

    Every value is laid out in groups of three bytes, the last filled up with zeros; a group is four characters, and
    what stands for none of its bytes becomes `=`.
    """
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths *= array.is_valid().to_numpy(zero_copy_only=False)
    groups = (lengths + 2) // 3
    ends = np.cumsum(groups)
    total = int(ends[-1]) if len(ends) else 0
    if 4 * total > _MAX_OFFSET:
        raise pa.ArrowCapacityError("2 GiB or more of base64")
    triples = _laid_out(array, offsets[:-1], lengths, 3 * (ends - groups), 3 * total).reshape(-1, 3)
    high = triples[:, 0].astype(np.uint32) << 4 | triples[:, 1] >> 4
    low = (triples[:, 1].astype(np.uint32) & 15) << 8 | triples[:, 2]
    texts = np.empty((total, 2), np.uint16)
    texts[:, 0], texts[:, 1] = _pairs()[high], _pairs()[low]
    characters = texts.view(np.uint8).reshape(-1)
    last = 4 * ends - 1
    characters[last[(lengths % 3) != 0]] = ord("=")
    characters[last[(lengths % 3) == 1] - 1] = ord("=")
    found = np.zeros(len(array) + 1, np.int32)
    found[1:] = 4 * ends
    return binary(characters, found)


def base64_values(texts: pa.StringArray) -> tuple[pa.BinaryArray, Flags]:
    """The bytes of each text, and flags for texts of another form, whose bytes are arbitrary. A null stays null.

    The form is that of `base64_texts`: with its padding, and no bit that stands for nothing.
    """
    is_null = texts.is_null() if texts.null_count else None
    is_other = (pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False) & 3) != 0
    if is_null is not None or is_other.any():
        texts = pc.if_else(pa.array(is_other), "", texts.fill_null(""))
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)
    begin, ends = offsets[0], offsets[1:][np.diff(offsets) > 0] - offsets[0]
    characters = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[begin : offsets[-1]]
    sixes = _sixes()[characters]
    pads = (sixes[ends - 1] == _PAD).astype(np.int64)
    pads += (sixes[ends - 2] == _PAD) & (pads == 1)
    sixes[ends[pads > 0] - 1] = 0
    sixes[ends[pads > 1] - 2] = 0
    unused = np.where(pads == 0, 0, np.where(pads == 1, sixes[ends - 2] & 3, sixes[ends - 3] & 15))
    wrong = np.concatenate([np.flatnonzero(sixes >= _PAD), ends[unused != 0] - 1])
    is_other[np.searchsorted(offsets, wrong + begin, side="right") - 1] = True
    first, second, third, fourth = sixes.reshape(-1, 4).T
    triples = np.empty((len(first), 3), np.uint8)
    triples[:, 0] = first << 2 | second >> 4
    triples[:, 1] = second << 4 | third >> 2
    triples[:, 2] = third << 6 | fourth
    is_used, last = np.ones(triples.size, np.bool_), ends // 4 * 3
    is_used[last[pads > 0] - 1] = False
    is_used[last[pads > 1] - 2] = False
    sizes = np.diff(offsets) // 4 * 3
    sizes[sizes > 0] -= pads
    found = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(sizes, out=found[1:])
    values = binary(triples.reshape(-1)[is_used], found)
    return (values if is_null is None else pc.if_else(is_null, None, values)), is_other


@cache
def _sixes() -> Bytes:
    """The six bits of each character."""
    table = np.full(256, _NONE, np.uint8)
    table[np.frombuffer(_ALPHABET.encode(), np.uint8)] = np.arange(64)
    table[ord("=")] = _PAD
    return table


def _laid_out(
    array: pa.BinaryArray,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    size: int,
) -> Bytes:
    """A buffer of zeros with the values copied to their offsets."""
    laid = np.zeros(size, np.uint8)
    data = array.buffers()[2]
    if not size or data is None:
        return laid
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    source = np.frombuffer(data, np.uint8)
    laid[within + np.repeat(places, lengths)] = source[within + np.repeat(starts, lengths)]
    return laid


@cache
def _pairs() -> npt.NDArray[np.uint16]:
    """Two characters for twelve bits."""
    return np.frombuffer("".join(a + b for a in _ALPHABET for b in _ALPHABET).encode(), np.uint16)


def unscaled_texts(array: pa.Decimal128Array) -> pa.BinaryArray:
    """The unscaled value in as few bytes as two's complement needs, big-endian; arbitrary where it is null."""
    if array.type.precision > MAX_NARROW:
        return base64_texts(_unscaled_bytes(array))
    numbers = raw(array, np.int64)
    magnitude = numbers ^ (numbers >> 63)
    sizes = np.ones(len(array), np.int64)
    top = int(magnitude.max(initial=0)).bit_length() // 8 + 1
    for size in range(1, top):
        sizes += magnitude >= 1 << (8 * size - 1)
    bits = numbers.view(np.uint64) << (64 - 8 * sizes).view(np.uint64)  # from the left
    groups = (top + 2) // 3
    texts = np.empty((len(array), 2 * groups), np.uint16)
    for pair in range(2 * groups):
        shift = 52 - 12 * pair
        twelve = bits >> np.uint64(shift) if shift > 0 else bits << np.uint64(-shift)
        texts[:, pair] = _pairs()[twelve & np.uint64(0xFFF)]
    used = (sizes + 2) // 3
    characters = texts.view(np.uint8).reshape(-1)
    last = np.arange(len(array)) * (4 * groups) + 4 * used - 1
    characters[last[sizes % 3 != 0]] = ord("=")
    characters[last[sizes % 3 == 1] - 1] = ord("=")
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(4 * used, out=offsets[1:])
    return binary(texts.view(np.uint32)[np.arange(groups) < used[:, None]], offsets)


def _unscaled_bytes(array: pa.Decimal128Array) -> pa.BinaryArray:
    rows = len(array)
    little = np.frombuffer(array.buffers()[1], np.uint8, 16 * rows, 16 * array.offset).reshape(rows, 16)
    negative = little[:, 15:] >> 7
    # A byte is needed if it or one above it, or the sign bit of the one below, is not what the sign says.
    differs = little != negative * np.uint8(0xFF)
    differs[:, 1:] |= (little[:, :-1] >> 7) != negative
    needed = np.logical_or.accumulate(differs[:, ::-1], axis=1)
    needed[:, 15] = True
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(needed.sum(axis=1), out=offsets[1:])
    return binary(np.ascontiguousarray(little[:, ::-1])[needed], offsets)
