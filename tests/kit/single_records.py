"""The decoder of an upstream's format for single records, as Python values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa

from schemas.codec.log_positions import positions_in
from schemas.codec.results import Decoded, Decoder
from schemas.errors import InputError
from schemas.formats.protocol import UpstreamFormat
from schemas.position import Key
from schemas.records import NO_DATA, Change, Op, Row
from schemas.table import Column
from schemas.types import Value
from tests.kit.upstream_record import UpstreamRecord


class SingleRecords:
    """Reads one record at a time."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """A record's key. Raises: InputError."""
        read = self._decoder.decode_keys(_one(data))
        _raise(read.errors, where)
        _raise(read.late, where)
        return _values(read.structs[0].as_py())

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """A record that is data. Raises: InputError; ValueError for one that is no data."""
        change = self.read_record(key, value, where=where).change
        if change is None:
            raise ValueError("a record that is no data")
        return change

    def read_record(
        self, key: bytes | None, value: bytes | None, *, where: str | None = None
    ) -> UpstreamRecord:
        """A record, with its content in addition to a change. Raises: InputError."""
        found = self._decoder.decode(_one(key), _one(value))
        _raise(found.errors, where)
        return record_at(found, 0)


def single_records(
    format_: UpstreamFormat, columns: Sequence[Column], key_columns: Sequence[Column]
) -> SingleRecords:
    """A format's decoder over rows of these columns, for single records."""
    return SingleRecords(format_.decoder(columns, key_columns))


def _one(data: bytes | None) -> pa.BinaryArray:
    return pa.array([data], pa.binary())


def record_at(found: Decoded, row: int) -> UpstreamRecord:
    """One of the records, which has no error."""
    op = found.ops[row].as_py()
    change = None if op == NO_DATA else Change(Op(op), _row(found.before, row), _row(found.after, row))
    unchanged = () if found.unchanged is None else tuple(found.unchanged[row].as_py())
    position = None if found.positions is None else next(positions_in(found.positions.slice(row, 1)))
    transaction = None if found.transactions is None else found.transactions[row].as_py()
    return UpstreamRecord(change, unchanged, position, transaction)


def _row(structs: pa.StructArray, row: int) -> Row | None:
    found = structs[row].as_py()
    return None if found is None else _values(found)


def _values(struct: dict[str, Value]) -> Row:
    """The values of a struct; Arrow has a name of its own for UTC, which only looks like another zone."""
    return tuple(
        value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for value in struct.values()
    )


def _raise(errors: dict[int, InputError], where: str | None) -> None:
    for error in errors.values():
        texts = {**error.texts, "where": where}
        raise InputError(error.code, **texts)
