"""The two ways inside of a decoder: the fast one, and the one that has the last word on each record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from schemas.avro.columns.records import ReadChanges, RegisteredColumns
from schemas.codec import avro_reader, envelopes
from schemas.codec.json.reader import JsonReader
from schemas.codec.results import read_marked, row_type
from schemas.errors import InputError
from schemas.formats.protocol import UpstreamFormat
from schemas.table import Column, TableSchema
from tests.kit.single_records import record_at, single_records
from tests.kit.upstream_record import UpstreamRecord

Record = tuple[bytes | None, bytes | None]
"""Key and value."""


class NotColumnarError(Exception):
    """A record that is not read by the fast way alone."""


def refuse_all(*_: object) -> Any:
    raise NotColumnarError


def _marked_structs(by_id: RegisteredColumns, records: pa.BinaryArray) -> tuple[pa.StructArray, Any]:
    return pa.nulls(len(records), by_id.kind), np.ones(len(records), np.bool_)


def _marked_changes(columns: Sequence[Column], values: pa.BinaryArray) -> ReadChanges:
    rows = pa.nulls(len(values), row_type(columns))
    return ReadChanges(pa.nulls(len(values), pa.int8()), rows, rows, np.ones(len(values), np.bool_))


def _marked_keys(columns: Sequence[Column], keys: pa.BinaryArray) -> tuple[pa.StructArray, Any]:
    return pa.nulls(len(keys), row_type(columns)), np.ones(len(keys), np.bool_)


def _none_marked(records: pa.BinaryArray, marked: Any, _: Callable[[Any], object]) -> Any:
    return read_marked(records, marked, refuse_all)


@contextmanager
def last_word_alone() -> Iterator[None]:
    """Each record is read by itself, by the way that has the last word."""
    with (
        patch.object(RegisteredColumns, "read", _marked_structs),
        patch.object(envelopes, "read_changes", _marked_changes),
        patch.object(envelopes, "read_change_keys", _marked_keys),
        patch.object(JsonReader, "_by_shape", lambda *_: iter(())),
    ):
        yield


@contextmanager
def fast_way_alone() -> Iterator[None]:
    """A record that is not read by the fast way is an NotColumnarError."""
    with (
        patch.object(avro_reader, "read_marked", _none_marked),
        patch.object(envelopes, "read_marked", _none_marked),
        patch.object(JsonReader, "_read_slowly", refuse_all),
    ):
        yield


def decoded(
    format_: UpstreamFormat, table: TableSchema, records: Sequence[Record]
) -> list[UpstreamRecord | InputError]:
    """The records of one block, by a decoder that has read nothing before."""
    keys, values = (pa.array([each[half] for each in records], pa.binary()) for half in (0, 1))
    found = format_.decoder(table.columns, table.key_columns).decode(keys, values)
    return [found.errors.get(row) or record_at(found, row) for row in range(len(records))]


def fast(format_: UpstreamFormat, table: TableSchema, records: Sequence[Record]) -> list[UpstreamRecord]:
    """By the fast way alone. Raises: NotColumnarError."""
    with fast_way_alone():
        found = decoded(format_, table, records)
    return list(map(_sound, found))


def one_by_one(
    format_: UpstreamFormat, table: TableSchema, records: Sequence[Record]
) -> list[UpstreamRecord]:
    """By the way that has the last word. Raises: InputError."""
    with last_word_alone():
        rows = single_records(format_, table.columns, table.key_columns)
        return [rows.read_record(*record) for record in records]


def agree(format_: UpstreamFormat, table: TableSchema, records: Sequence[Record]) -> bool:
    """True if the fast way reads all of these; then it reads what the other one does."""
    try:
        found = fast(format_, table, records)
    except NotColumnarError:
        return False
    assert as_text(found) == as_text(one_by_one(format_, table, records))
    return True


def as_text(found: Sequence[object]) -> str:
    """Text in which -0.0 is not 0.0, and UTC has one name; Arrow and fastavro name it differently."""
    return repr(found).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


def _sound(found: UpstreamRecord | InputError) -> UpstreamRecord:
    if isinstance(found, InputError):  # of an envelope
        raise NotColumnarError
    return found


def results(format_: UpstreamFormat, table: TableSchema, records: Sequence[Record]) -> list[str]:
    """Each record of a block in words, or the code of its error."""
    return [_in_words(each) for each in decoded(format_, table, records)]


def results_alone(format_: UpstreamFormat, table: TableSchema, records: Sequence[Record]) -> list[str]:
    """Each record by itself, by the way that has the last word."""
    with last_word_alone():
        return [result for record in records for result in results(format_, table, [record])]


def _in_words(found: UpstreamRecord | InputError) -> str:
    return str(found.code) if isinstance(found, InputError) else as_text([found])
