"""Upstream records that the format forbids: doubtful ones are read again by the strict reader in Python.

A decoder on Spark passes on the value of every record that it could not read, or may have read as something else than
what is there (`streaming.source.formats.protocol`). Those are few. The reader in Python (`Format.rows`) must accept
them and give the same row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.codec import ChangeCodec
from schemas.avro.columnar import encode_changes
from schemas.error_table import expectation
from schemas.errors import Code, InputError
from schemas.formats.by_columns.log_positions import positions_in
from schemas.formats.protocol import Format, Rows
from schemas.records import UpstreamRecord
from schemas.table import TableSchema
from state.columns import TRANSACTION
from streaming.lane.changes import Bools, Changes
from streaming.source.decoded import KEY, MARKED, POSITION, UNCHANGED, VALUE

Found = tuple[int, Code, str, str]
"""Row by index, code, what was found, what was expected."""
_ONE_MEANING = "a record that has one meaning in the upstream's format"


def found(row: int | np.intp, code: Code, text: str, **values: object) -> Found:
    """A `Found` with the expectation of its code, in which `values` are filled in."""
    return int(row), code, text, expectation(code, **values)


def differs(left: pa.Array, right: pa.Array | pa.ChunkedArray) -> Bools:
    """Where both are set and not equal."""
    return np.asarray(pc.fill_null(pc.not_equal(left, right), False), dtype=np.bool_)


def is_set(values: pa.Array | pa.ChunkedArray) -> Bools:
    """Where there is a value."""
    return np.asarray(pc.is_valid(values), dtype=np.bool_)


@dataclass(frozen=True)
class FormatFaults:
    """Finds faults in changes of an upstream with this format, as pairs in no order."""

    changes: Changes
    table: TableSchema
    format: Format

    @cached_property
    def _rows(self) -> Rows:
        return self.format.rows(self.table.columns, self.table.key_columns)

    @cached_property
    def _plain(self) -> ChangeCodec:
        """Whatever the format, in Avro equal rows are equal bytes, NaN and -0.0 included."""
        return ChangeCodec(self.table.columns)

    def in_values(self) -> Iterator[Found]:
        """Records that were not decoded, or not as they were written."""
        keys, values, ops = self.changes.rows[KEY], self.changes.rows[VALUE], self.changes.ops
        for row in np.flatnonzero((is_set(values) | (ops < 0)) & (ops != MARKED)):
            value = values[row].as_py()
            if value is None and not self.format.may_be_null:
                yield found(row, Code.TOMBSTONE_UNSUPPORTED, "a record without a value")
                continue
            try:
                record = self._rows.read_record(keys[row].as_py(), value)
            except InputError as error:
                yield int(row), error.code, error.found, error.expected
                continue
            if ops[row] < 0 or not self._is_decoded(int(row), record):
                text = f"{len(value or b'')} bytes that readers do not agree on"
                yield int(row), Code.CHANGE_MALFORMED, text, _ONE_MEANING

    def _is_decoded(self, row: int, record: UpstreamRecord) -> bool:
        """Whether the decoded columns agree with the record as it was read again."""
        rows = self.changes.rows
        unchanged = rows[UNCHANGED][row].as_py() if UNCHANGED in rows.column_names else ()
        own = rows[POSITION].slice(row, 1).combine_chunks() if POSITION in rows.column_names else None
        position = None if own is None else next(positions_in(own))
        same = record.unchanged == tuple(unchanged)
        same &= record.position == position
        if TRANSACTION in rows.column_names:
            same &= record.transaction == rows[TRANSACTION][row].as_py()
        return same and record.change is not None and self._plain.encode(record.change) == self._decoded(row)

    def _decoded(self, row: int) -> bytes:
        """The change in the decoded columns, encoded in Avro for comparison."""
        changes = self.changes
        halves = ([column.slice(row, 1) for column in half] for half in (changes.before, changes.after))
        encoded = encode_changes(self.table.columns, pa.array(changes.ops[row : row + 1], pa.int8()), *halves)
        return bytes(encoded[0].as_py())

    def in_keys(self) -> Iterator[Found]:
        """Records whose key is another than the row's, where the decoder has not compared them."""
        changes, record_keys = self.changes, self.changes.rows[KEY]
        encoder = self.format.keys(self.table.key_columns)
        if encoder is None:
            return
        usual = changes.encoded_keys(encoder)
        for row in map(int, np.flatnonzero(differs(usual, record_keys) & (changes.ops >= 0))):
            key = tuple(column[row].as_py() for column in changes.keys)
            if not self._rows.is_key(record_keys[row].as_py(), key):
                yield found(row, Code.KEY_MISMATCH, "a record key that is not the row's")
