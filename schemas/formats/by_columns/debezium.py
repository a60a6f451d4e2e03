"""Change events of Debezium's connectors in JSON, by whole columns: those without a frame around them.

Arrow's reader takes from an event what it is asked for, and passes over the rest. What it would take, and the twin
(`schemas.formats.events.debezium_json`) would refuse, is looked for in the bytes: `NaN` in the place of a value, and
what is so long or deep that it might be beyond the limits of Spark's reader. One odd record is an `OddRecordError` for
all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.cursor import spread
from schemas.formats.by_columns.limits import check_limits
from schemas.formats.by_columns.upserts import half
from schemas.formats.events.rows import (
    COMPARABLE,
    DELETE,
    INCREMENTAL,
    READ,
    SEQUENCE,
    WHOLE_OPS,
    halves,
)
from schemas.formats.protocol import ReadColumns
from schemas.json.debezium_columns import DebeziumColumnValues
from schemas.json.objects import parsed
from schemas.records import NO_DATA, OddRecordError, Op, refuse
from schemas.table import Column
from schemas.types import TypeName

_Flags = npt.NDArray[np.bool_]
_Number = TypeVar("_Number", np.bool_, np.int8)

_SEQUENCE = "^{}(?P<commit>{}(?P<lsn>{}$".format(*SEQUENCE.split("("))
"""Arrow wants names for its parts."""
_SEARCHED = 100
"""Events in which a value of each instant is looked for."""


@dataclass(frozen=True)
class DebeziumColumns:
    """See `formats.protocol.ColumnReader`. `whole`: the row before is read, too; `transactions`: of each change."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    settings: DebeziumColumnValues
    whole: bool
    transactions: bool

    @property
    def can_read(self) -> bool:
        """Whether it is known what values mean: the settings say it, or schemas."""
        return all(map(self.settings.can_read, (*self.columns, *self.key_columns)))

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """A null value is a DELETE, or no data where the event before it has said so. Raises: OddRecordError."""
        is_event = values.is_valid()
        texts = values.drop_null()
        check_limits(texts)
        zones = self._with_zones(texts)
        own = self._keys(keys.filter(is_event) if self.whole else keys, zones)
        of_events = own if self.whole else [key.filter(is_event) for key in own]
        events = parsed(texts, self._fields(zones), others="ignore")
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

    def _fields(self, zones: frozenset[str]) -> list[pa.Field]:
        row = pa.struct([self.settings.field(each, has_zone=each.name in zones) for each in self.columns])
        numbers = ("lsn", "txId") if self.transactions else ("lsn",)
        source = [(name, pa.string()) for name in ("connector", "snapshot", "sequence")]
        source += [(name, pa.int64()) for name in numbers]
        names = halves(whole=self.whole)
        return [
            pa.field("op", pa.string()),
            *(pa.field(name, row) for name in names),
            pa.field("source", pa.struct(source)),
        ]

    def _with_zones(self, texts: pa.BinaryArray) -> frozenset[str]:
        """The columns of instants that are texts, as those with a time zone are: by the first value of each."""
        found = dict[str, bool]()
        unknown = {each.name for each in self.columns if each.type.name is TypeName.TIMESTAMP}
        for text in texts.slice(0, _SEARCHED).to_pylist() if unknown else ():
            row = _row_in(text)
            found |= {name: isinstance(row[name], str) for name in unknown if row.get(name) is not None}
            unknown -= found.keys()
            if not unknown:
                break
        return frozenset(name for name, is_text in found.items() if is_text)

    def _keys(self, texts: pa.BinaryArray, zones: frozenset[str]) -> list[pa.Array]:
        """The key columns, in key order."""
        check_limits(texts)
        fields = [self.settings.field(each, has_zone=each.name in zones) for each in self.key_columns]
        found = parsed(texts, fields).flatten()
        refuse(any(each.null_count for each in found))
        return [self.settings.values(*pair) for pair in zip(self.key_columns, found, strict=True)]

    def _row(self, row: pa.StructArray, keys: Sequence[pa.Array]) -> _Row:
        """A row of each event. The key columns are those of the key; what it has of them has to be equal."""
        own = {column.name: key for column, key in zip(self.key_columns, keys, strict=True)}
        is_there = row.is_valid()
        columns, left_out = [], dict[int, _Flags]()
        for index, (column, found) in enumerate(zip(self.columns, row.flatten(), strict=True)):
            key = own.get(column.name)
            is_out = self.settings.placeholders(column, found) if key is None else None
            if is_out is not None and is_out.true_count:
                left_out[index] = is_out.fill_null(False).to_numpy(zero_copy_only=False)
                found = pc.if_else(is_out, None, found)
            values = self.settings.values(column, found)
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
    """Where changes come from; see `position_of` and `transaction_of` of `schemas.formats.events.rows`."""

    fields: pa.StructArray

    def positions(self) -> pa.StructArray:
        """Structs of `commit` and `lsn`; null where they can't be compared."""
        lsn = self._field("lsn")
        parts = pc.extract_regex(self._field("sequence"), _SEQUENCE)
        try:
            commit = pc.struct_field(parts, "commit").cast(pa.int64())
        except pa.ArrowInvalid:
            raise OddRecordError from None
        is_set = pc.and_(self._is_change(), pc.and_(parts.is_valid(), lsn.is_valid()))
        return pa.StructArray.from_arrays([commit, lsn], ["commit", "lsn"], mask=pc.invert(is_set))

    def transactions(self) -> pa.Int64Array:
        """Null for what is no change of PostgreSQL."""
        return pc.if_else(self._is_change(), self._field("txId"), None)

    def _is_change(self) -> pa.BooleanArray:
        of_kind = pc.equal(self._field("connector"), COMPARABLE)
        return pc.and_(of_kind, pc.equal(self._field("snapshot"), "false")).fill_null(False)

    def _field(self, name: str) -> pa.Array:
        return pc.struct_field(self.fields, name)


def _row_in(text: bytes) -> Mapping[str, Any]:
    """The row after or before in an event. Raises: OddRecordError."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        raise OddRecordError from None
    refuse(not isinstance(event, dict))
    row = event.get("after") or event.get("before") or {}
    refuse(not isinstance(row, dict))
    return dict(row)
