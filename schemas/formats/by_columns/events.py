"""Events of the output format `debezium` in JSON, by whole columns.

An event is `{"before":<row>,"after":<row>` and an ending with its source and its op. The rows are read and written
again side by side. What is left are the endings, and these are few: those of one op, interval and part are equal. One
event of each kind (the same ending, and the same of its rows there) is read by the strict twin, and speaks for all of
them: the twin writes an event again from its content and compares, so with other rows it would write these other bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.avro.columns.cursor import spread
from schemas.errors import InputError
from schemas.formats.by_columns.upserts import check_keys, half, has_keys
from schemas.formats.outputs.debezium_json import JsonEvents
from schemas.formats.protocol import ReadColumns
from schemas.json.columnar import joined
from schemas.json.objects import are_spaced, parsed, read_objects, row_field, struct_columns, written
from schemas.json.pieces import binary
from schemas.records import OddRecordError, refuse
from schemas.table import Column

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class EventColumns:
    """See `formats.protocol.ColumnReader`. Keys are objects of the key columns, all of which a row has, too."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]

    @classmethod
    def of(cls, columns: Sequence[Column], key_columns: Sequence[Column]) -> EventColumns | None:
        """None where rows do not have their keys."""
        return cls(tuple(columns), tuple(key_columns)) if has_keys(columns, key_columns) else None

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """Raises: OddRecordError, also for a null."""
        fields = [row_field(name, self.columns) for name in ("before", "after")]
        own = read_objects(self.key_columns, keys)
        refuse(are_spaced(self.key_columns, keys))
        before, after = (self._half(rows, own) for rows in parsed(values, fields, others="ignore").flatten())
        begin = joined(len(values), [b'{"before":', before.texts, b',"after":', after.texts])
        ops = self._ops(values, _behind(values, begin), before.is_there, after.is_there)
        return ReadColumns(ops, before.rows, after.rows)

    def _half(self, rows: pa.StructArray, keys: Sequence[pa.Array]) -> _Half:
        is_there = rows.is_valid()
        own = struct_columns(self.columns, rows.filter(is_there))
        check_keys(self.columns, self.key_columns, own, [key.filter(is_there) for key in keys])
        flags = is_there.to_numpy(zero_copy_only=False)
        texts = spread(written(self.columns, own), flags)
        return _Half(half(self.columns, own, flags), texts, flags)

    def _ops(
        self, values: pa.BinaryArray, endings: pa.BinaryArray, has_before: Flags, has_after: Flags
    ) -> npt.NDArray[np.int8]:
        """Of each event, as its kind's first one has it."""
        kinds = endings.dictionary_encode().indices.to_numpy() * 4 + has_before * 2 + has_after
        _, firsts, own = np.unique(kinds, return_index=True, return_inverse=True)
        events = JsonEvents(self.columns, "json")
        try:
            ops = [events.read(values[int(first)].as_py(), None).op for first in firsts]
        except InputError:
            raise OddRecordError from None
        return np.array(ops, np.int8)[own]


@dataclass(frozen=True)
class _Half:
    """Rows before or after with their texts, null where there is none."""

    rows: pa.StructArray
    texts: pa.BinaryArray
    is_there: Flags


def _behind(values: pa.BinaryArray, begin: pa.BinaryArray) -> pa.BinaryArray:
    """What is left of each text behind a beginning of its own. Raises: OddRecordError where it begins otherwise."""
    (data, starts, sizes), (beginnings, _, lengths) = map(_parts, (values, begin))
    refuse((lengths > sizes).any())
    refuse(not np.array_equal(data[_places(starts, lengths)], beginnings))
    rest = sizes - lengths
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(rest, out=ends[1:])
    return binary(data[_places(starts + lengths, rest)], ends)


def _parts(
    texts: pa.BinaryArray,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bytes of all texts, one behind the other, and where each begins and how long it is."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1].astype(np.int64)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets[:-1] - offsets[0], np.diff(offsets)


def _places(starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The places of `sizes[i]` bytes from `starts[i]` on, for every i."""
    ends = np.cumsum(sizes)
    places = np.repeat(starts - ends + sizes, sizes)
    places += np.arange(len(places))
    return places
