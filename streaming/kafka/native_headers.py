"""Records with headers for librdkafka, from whole columns: one C call a record, no Python bytecode per row.

`rd_kafka_produce_batch` has no place for headers. `rd_kafka_produceva` takes one record as an array of tagged values
(`rd_kafka_vu_t` in rdkafka.h); numpy lays those of all records out, and `map` makes the calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from itertools import repeat
from operator import length_hint
from typing import Any

import numpy as np
import numpy.typing as npt

_RKT, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER = 2, 3, 4, 5, 7, 9
_COPY = 0x2
_CHUNK_RECORDS = 10_000
_TAGGED = np.dtype(
    [
        ("tag", np.int32),
        ("pad", np.int32),
        ("a", np.uint64),
        ("b", np.uint64),
        ("c", np.uint64),
        ("rest", "V40"),
    ]
)
"""A tag and a union of 64 bytes, of which three words are used: pointer, pointer or size, size."""


def declare(library: ctypes.CDLL) -> None:
    """Give the functions their types. Raises: AttributeError where the library lacks one."""
    library.rd_kafka_produceva.restype = ctypes.c_void_p
    library.rd_kafka_produceva.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    library.rd_kafka_error_code.restype = ctypes.c_int
    library.rd_kafka_error_code.argtypes = [ctypes.c_void_p]
    library.rd_kafka_error_destroy.restype = None
    library.rd_kafka_error_destroy.argtypes = [ctypes.c_void_p]


class HeaderRecords:
    """n records of one topic, with the same headers. What they point to must stay alive until all are queued."""

    def __init__(self, topic: int, messages: npt.NDArray[np.void], headers: Mapping[str, bytes]) -> None:
        """`messages` has partition, payload, len, key and key_len of each; `topic` is a handle."""
        self._messages = messages
        self._held = [(ctypes.c_char_p(name.encode()), value) for name, value in headers.items()]
        self._constant = self._constants(topic)

    def _constants(self, topic: int) -> npt.NDArray[np.void]:
        fields = np.zeros(5 + len(self._held), dtype=_TAGGED)
        fields["tag"][:5] = _RKT, _FLAGS, _PARTITION, _VALUE, _KEY
        fields["tag"][5:] = _HEADER
        fields["a"][:2] = topic, _COPY
        for field, (name, value) in zip(fields[5:], self._held, strict=True):
            field["a"] = ctypes.cast(name, ctypes.c_void_p).value
            field["b"] = ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value
            field["c"] = len(value)
        return fields

    def queue(self, library: ctypes.CDLL, handle: int) -> Iterator[int]:
        """Queue all, in order; gives librdkafka's code for each refusal, and tries that record again when resumed."""
        for start in range(0, len(self._messages), _CHUNK_RECORDS):
            yield from _queue(library, handle, self._laid_out(start, start + _CHUNK_RECORDS))

    def _laid_out(self, start: int, stop: int) -> npt.NDArray[np.void]:
        messages = self._messages[start:stop]
        fields = np.tile(self._constant, (len(messages), 1))
        fields["a"][:, 2] = messages["partition"].astype(np.uint32)
        fields["a"][:, 3], fields["b"][:, 3] = messages["payload"], messages["len"]
        fields["a"][:, 4], fields["b"][:, 4] = messages["key"], messages["key_len"]
        return fields


def _queue(library: ctypes.CDLL, handle: int, fields: npt.NDArray[np.void]) -> Iterator[int]:
    count, width = fields.shape
    size, base, first = width * _TAGGED.itemsize, fields.ctypes.data, 0
    produce: Any = library.rd_kafka_produceva
    while first < count:
        places = iter(range(base + first * size, base + count * size, size))
        # Stops at the first record that is refused; none may be overtaken by a later one of its partition.
        refused = next(filter(None, map(produce, repeat(handle), places, repeat(width))), None)
        if refused is None:
            return
        first = count - length_hint(places) - 1
        code = int(library.rd_kafka_error_code(refused))
        library.rd_kafka_error_destroy(refused)
        yield code
