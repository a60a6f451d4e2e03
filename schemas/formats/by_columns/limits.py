"""What the strict reader of JSON refuses, or may, and Arrow's reader takes: found in whole batches of texts.

A few passes over the bytes, no regular expression: those took as long as all of the rest for events of many columns.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.events.frames import FRAMED
from schemas.json.parsing.tokens import MAX_DEPTH, MAX_NAME, MAX_NUMBER
from schemas.records import refuse

_Bytes = npt.NDArray[np.uint8]

_NO_NUMBERS = (b"NaN", b"Inf")
_BEFORE_A_NUMBER = np.frombuffer(b"[:,-\t\n\f\r ", np.uint8)
_STRING = re.compile(rb'"(?P<content>(?:[^"\\]++|\\.)*+)"(?P<is_name>\s*:)?', re.DOTALL)
_LONG = min(MAX_NUMBER, MAX_DEPTH)
"""Bytes of a shorter record can't be beyond these limits."""
_FRAME_DEPTH = 1
"""A text may be the payload of a record."""
_SAMPLED = 5
"""One byte in so many is looked at first."""
_MANY_DIGITS = MAX_NUMBER // 8
"""A number that is too long has a quarter of its limit in a row, with sign, point and exponent between its digits; and
these hold a whole block of half as many, wherever blocks begin."""


def check_limits(texts: pa.BinaryArray) -> None:
    """Refuses frames as well; and texts in order that have a hundred digits in a row.

    Raises: OddRecordError.
    """
    if not len(texts):
        return
    refuse(pc.any(pc.starts_with(texts, FRAMED)).as_py())
    sizes = pc.binary_length(texts)
    bounds = pc.min_max(sizes)
    refuse(not bounds["min"].as_py())
    largest = bounds["max"].as_py()
    if largest > MAX_NAME:
        long = texts.filter(pc.greater(sizes, MAX_NAME))
        refuse(any(map(_has_long_name, long.to_pylist())))
    data, ends = _laid_out(texts)
    refuse(any(np.isin(data[_find(data, word) - 1], _BEFORE_A_NUMBER).any() for word in _NO_NUMBERS))
    if largest >= _LONG:
        refuse(_has_many_digits(data))
        opened = np.flatnonzero((data == ord("{")) | (data == ord("[")))
        refuse(np.diff(np.searchsorted(opened, ends), prepend=0).max() >= MAX_DEPTH - _FRAME_DEPTH)


def _has_long_name(text: bytes) -> bool:
    names = (found for found in _STRING.finditer(text) if found["is_name"])
    return any(len(name["content"]) > MAX_NAME for name in names)


def _laid_out(texts: pa.BinaryArray) -> tuple[_Bytes, npt.NDArray[np.int32]]:
    """The bytes of all texts, none of which is null, one after another; and where each ends."""
    places = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)
    return np.frombuffer(texts.buffers()[2], np.uint8)[places[0] : places[-1]], places[1:] - places[0]


def _find(data: _Bytes, word: bytes) -> npt.NDArray[np.int64]:
    """Where a word begins."""
    found = np.flatnonzero(data[: len(data) - len(word) + 1] == word[0])
    for place, byte in enumerate(word[1:], 1):
        found = found[data[found + place] == byte]
    return found


def _has_many_digits(data: _Bytes) -> bool:
    blocks = data[: len(data) // _MANY_DIGITS * _MANY_DIGITS].reshape(-1, _MANY_DIGITS)
    likely = _are_digits(blocks[:, ::_SAMPLED]).all(axis=1)
    return bool(_are_digits(blocks[likely]).all(axis=1).any())


def _are_digits(data: _Bytes) -> npt.NDArray[np.bool_]:
    return data - np.uint8(ord("0")) < 10  # what is below 0 wraps around
