"""Change events of Debezium's connectors, by whole columns, in whatever encoding they are.

A reader of the encoding takes events apart; here stands what they mean, as `schemas.formats.events.rows` has it of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.cursor import spread
from schemas.formats.by_columns.log_positions import source_positions
from schemas.formats.by_columns.upserts import half
from schemas.formats.events.logs import INCREMENTAL, POSTGRESQL, STREAMED
from schemas.formats.events.rows import (
    DELETE,
    READ,
    WHOLE_OPS,
    halves,
)
from schemas.formats.protocol import ReadColumns
from schemas.records import NO_DATA, Op, refuse
from schemas.table import Column

_Flags = npt.NDArray[np.bool_]
_Number = TypeVar("_Number", np.bool_, np.int8)


class Events(NamedTuple):
    """The key columns of some records, in key order and without nulls; and events, structs of their fields.

    These are `op`, `source` (texts and numbers as `schemas.formats.events.logs` names them, and `txId` if wanted) and
    the halves that are wanted: structs of the columns, each as the reader's `values` takes it.
    """

    keys: Sequence[pa.Array]
    events: pa.StructArray


class EventReader(Protocol):
    """Takes the events of one encoding apart."""

    def read(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Events:
        """`values` have no nulls; there may be more keys than these. Raises: OddRecordError."""

    def placeholders(self, column: Column, found: pa.Array) -> pa.BooleanArray | None:
        """Where the connector left the value out; None for columns whose values it never leaves out."""

    def values(self, column: Column, found: pa.Array) -> pa.Array:
        """The column in its own type. Raises: OddRecordError."""


@dataclass(frozen=True)
class DebeziumColumns:
    """See `formats.protocol.ColumnReader`. `whole`: the row before is read, too; `transactions`: of each change."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    reader: EventReader
    whole: bool
    transactions: bool

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """A null value is a DELETE, or no data where the event before it has said so. Raises: OddRecordError."""
        is_event = values.is_valid()
        own, events = self.reader.read(keys.filter(is_event) if self.whole else keys, values.drop_null())
        of_events = own if self.whole else [key.filter(is_event) for key in own]
        rows = {name: self._row(events.field(name), of_events) for name in halves(whole=self.whole)}
        ops = self._ops(events, rows)
        place = _Places(is_event.to_numpy(zero_copy_only=False))
        source = _Source(events.field("source"))
        return ReadColumns(
            place.every(ops, NO_DATA if self.whole else Op.DELETE),
            self._struct(rows["before"], place, ops != Op.INSERT)
            if self.whole
            else self._gone(own, place, ops),
            self._struct(rows["after"], place, ops != Op.DELETE),
            place.lists(rows["after"].left_out),
            place.rows(source.positions()),
            place.rows(source.transactions()) if self.transactions else None,
        )

    def _row(self, row: pa.StructArray, keys: Sequence[pa.Array]) -> _Row:
        """A row of each event. The key columns are those of the key; what it has of them has to be equal."""
        own = {column.name: key for column, key in zip(self.key_columns, keys, strict=True)}
        is_there = row.is_valid()
        columns, left_out = [], dict[int, _Flags]()
        for index, (column, found) in enumerate(zip(self.columns, row.flatten(), strict=True)):
            key = own.get(column.name)
            is_out = self.reader.placeholders(column, found) if key is None else None
            if is_out is not None and is_out.true_count:
                left_out[index] = is_out.fill_null(False).to_numpy(zero_copy_only=False)
                found = pc.if_else(is_out, None, found)
            values = self.reader.values(column, found)
            if key is not None:
                refuse(not pc.all(pc.equal(values, key), min_count=0).as_py())
                values = pc.if_else(is_there, key, None)
            columns.append(values)
        return _Row(columns, is_there.to_numpy(zero_copy_only=False), left_out)

    def _ops(self, events: pa.StructArray, rows: Mapping[str, _Row]) -> npt.NDArray[np.int8]:
        op = events.field("op")
        names = list(WHOLE_OPS)
        number = pc.index_in(op, pa.array(names))
        refuse(number.null_count)
        codes = [WHOLE_OPS[name] if self.whole or name == DELETE else Op.INSERT for name in names]
        ops: npt.NDArray[np.int8] = np.array(codes, np.int8)[number.to_numpy()]
        refuse((rows["after"].is_there != (ops != Op.DELETE)).any())
        if self.whole:
            is_incremental = pc.equal(pc.struct_field(events, ["source", "snapshot"]), INCREMENTAL)
            refuse(pc.any(pc.and_kleene(pc.equal(op, READ), is_incremental), min_count=0).as_py())
            refuse((~rows["before"].is_there & (ops != Op.INSERT)).any())
            refuse(any(row.left_out for row in rows.values()))
        return ops

    def _struct(self, row: _Row, place: _Places, is_there: _Flags) -> pa.StructArray:
        own = pa.array(is_there)
        compact = [column.filter(own) for column in row.columns]
        return half(self.columns, compact, place.every(is_there))

    def _gone(self, keys: Sequence[pa.Array], place: _Places, ops: npt.NDArray[np.int8]) -> pa.StructArray:
        """The rows before of deletes: the key columns, and nulls beside them."""
        is_gone = ~place.every(ops != Op.DELETE)
        own = dict(zip((each.name for each in self.key_columns), keys, strict=True))
        count = int(is_gone.sum())
        compact = [
            own[each.name].filter(pa.array(is_gone)) if each.name in own else pa.nulls(count, each.type.arrow)
            for each in self.columns
        ]
        return half(self.columns, compact, is_gone)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of each event. `left_out`: by the index of a column, in which events it is left out."""

    columns: Sequence[pa.Array]
    is_there: _Flags
    left_out: Mapping[int, _Flags]


@dataclass(frozen=True, slots=True)
class _Places:
    """Where events stand among all records; the others have no value."""

    is_event: _Flags

    def rows(self, found: pa.Array) -> pa.Array:
        """Those of the events, and nulls between them."""
        return found if self.is_event.all() else spread(found, self.is_event)

    def every(self, found: npt.NDArray[_Number], otherwise: int = 0) -> npt.NDArray[_Number]:
        """The same of flags or ops, with another one elsewhere."""
        every = np.full(len(self.is_event), otherwise, found.dtype)
        every[self.is_event] = found
        return every

    def lists(self, found: Mapping[int, _Flags]) -> pa.ListArray:
        """For each record the numbers whose flag it has, in their order."""
        numbers = sorted(found)
        table = np.zeros((len(self.is_event), len(numbers)), np.bool_)
        for place, number in enumerate(numbers):
            table[:, place] = self.every(found[number])
        ends = np.zeros(len(table) + 1, np.int32)
        np.cumsum(table.sum(axis=1), out=ends[1:])
        return pa.ListArray.from_arrays(ends, pa.array(np.array(numbers, np.int32)[np.nonzero(table)[1]]))


@dataclass(frozen=True, slots=True)
class _Source:
    """Where changes come from; see `schemas.formats.events.rows.transaction_of`."""

    fields: pa.StructArray

    def positions(self) -> pa.StructArray:
        """As `log_positions` has them."""
        return source_positions(self._field)

    def transactions(self) -> pa.Int64Array:
        """Null for what is no change of PostgreSQL."""
        return pc.if_else(self._is_change(), self._field("txId"), None)

    def _is_change(self) -> pa.BooleanArray:
        of_kind = pc.equal(self._field("connector"), POSTGRESQL)
        return pc.and_(of_kind, pc.equal(self._field("snapshot"), STREAMED)).fill_null(False)

    def _field(self, name: str) -> pa.Array:
        return pc.struct_field(self.fields, name)
