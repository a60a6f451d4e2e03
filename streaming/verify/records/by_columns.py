"""Changes of another format in canonical form, many at a time: some microseconds each, where one by one takes sixty.

They are read by whole columns, and written in Avro by whole columns. That reading is tested against the format's twin,
and has nothing in common with how a lane writes: Arrow takes the JSON apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columnar import encode_changes, encode_keys
from schemas.codec.log_positions import positions_in
from schemas.codec.logs import LogPosition
from schemas.formats.protocol import ColumnReader, ReadColumns
from schemas.records import NO_DATA, OddRecordError
from schemas.table import Column
from streaming.verify.history import Entry
from streaming.verify.records.in_order import Recoded


class CanonicalColumns:
    """Recodes what a reader of these columns reads."""

    def __init__(self, read: ColumnReader, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._read, self._columns, self._key_columns = read, columns, key_columns

    def recoded(self, entries: Sequence[Entry]) -> list[Recoded] | None:
        """In canonical form, in their order; None where one of them has to be read by itself."""
        given = [(entry.key, entry.value) for entry in entries]
        keys, values = (pa.array([pair[half] for pair in given], pa.binary()) for half in (0, 1))
        try:
            found = self._read(keys, values)
        except OddRecordError:
            return None
        pairs = iter(zip(*self._canonical(found), strict=True))
        recoded = [
            None if op == NO_DATA else Entry(entry.offset, *next(pairs), None, pair, entry.epoch)
            for entry, pair, op in zip(entries, given, found.ops.tolist(), strict=True)
        ]
        return [*map(Recoded, recoded, _positions(found), _unchanged(found))]

    def _canonical(self, found: ReadColumns) -> tuple[list[bytes], list[bytes]]:
        """Keys and values of what is data of the table."""
        is_data = pa.array(found.ops != NO_DATA)
        ops, before, after = (
            each.filter(is_data) for each in (pa.array(found.ops), found.before, found.after)
        )
        changes = encode_changes(self._columns, ops, before.flatten(), after.flatten())
        rows = pc.if_else(after.is_valid(), after, before)
        keys = encode_keys(
            self._key_columns, [pc.struct_field(rows, column.name) for column in self._key_columns]
        )
        return keys.to_pylist(), changes.to_pylist()


def _positions(found: ReadColumns) -> Iterable[LogPosition | None]:
    return repeat(None, len(found.ops)) if found.positions is None else positions_in(found.positions)


def _unchanged(found: ReadColumns) -> Iterable[Sequence[int]]:
    if found.unchanged is None or not len(found.unchanged.values):
        return repeat((), len(found.ops))
    lists: list[list[int]] = found.unchanged.to_pylist()
    return lists
