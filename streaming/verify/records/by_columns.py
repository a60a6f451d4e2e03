"""Changes of another format in canonical form, many at a time: some microseconds each, where one by one takes sixty.

They are read by whole columns, and written in Avro by whole columns. That reading is tested against the format's twin,
and has nothing in common with how a lane writes: Arrow takes the JSON apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columnar import encode_changes, encode_keys
from schemas.formats.protocol import ColumnReader
from schemas.records import OddRecordError
from schemas.table import Column
from streaming.verify.history import Entry


class CanonicalColumns:
    """Recodes what a reader of these columns reads."""

    def __init__(self, read: ColumnReader, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._read, self._columns, self._key_columns = read, columns, key_columns

    def recoded(self, entries: Sequence[Entry]) -> list[Entry] | None:
        """Changes in canonical form, in their order; None where one of them has to be read by itself."""
        given = [(entry.key, entry.value) for entry in entries]
        keys, values = (pa.array([pair[half] for pair in given], pa.binary()) for half in (0, 1))
        try:
            ops, before, after, *_ = self._read(keys, values)
        except OddRecordError:
            return None
        changes = encode_changes(self._columns, pa.array(ops), before.flatten(), after.flatten())
        rows = pc.if_else(after.is_valid(), after, before)
        own = encode_keys(
            self._key_columns, [pc.struct_field(rows, column.name) for column in self._key_columns]
        )
        return [
            Entry(entry.offset, key, value, None, pair, entry.epoch)
            for entry, key, value, pair in zip(
                entries, own.to_pylist(), changes.to_pylist(), given, strict=True
            )
        ]
