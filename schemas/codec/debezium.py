"""The envelope of Debezium's connectors: the meaning of change events, whatever their encoding.

An INSERT only says what the row is now; with the row before (`whole`) it says that there was none. Source:
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrays import in_order
from schemas.codec.log_positions import source_positions
from schemas.codec.logs import INCREMENTAL, NUMBERS, POSTGRESQL, STREAMED, TEXTS
from schemas.codec.results import (
    Decoded,
    Flags,
    ReadStructs,
    RowErrors,
    StructReader,
    fields_of,
    flags_of,
    null_where,
    read_keys,
    row_type,
    rows_of,
    taken,
)
from schemas.errors import Code, InputError
from schemas.records import NO_DATA, Op
from schemas.table import Column
from schemas.types import TypeName, Value

UPSERTS, DELETE, TRUNCATE, MESSAGE = ("r", "c", "u"), "d", "t", "m"
READ, CREATE, UPDATE = UPSERTS
WHOLE_OPS = {READ: Op.INSERT, CREATE: Op.INSERT, UPDATE: Op.UPDATE, DELETE: Op.DELETE}
"""The ops of events that come with whole rows."""


def images(*, whole: bool) -> tuple[str, ...]:
    """The rows that are read of an event: that before it only if `whole`."""
    return ("before", "after") if whole else ("after",)


def event_type(columns: Sequence[Column], *, whole: bool, transactions: bool) -> pa.StructType:
    """The struct that an encoding reads of an event; `has_time` is whether it has a `ts_ms` of its own."""
    source = [(name, pa.string()) for name in TEXTS]
    source += [(name, pa.int64()) for name in (*NUMBERS, *(("txId",) if transactions else ()))]
    rows = [(name, row_type(columns)) for name in images(whole=whole)]
    return pa.struct([("op", pa.string()), ("has_time", pa.bool_()), ("source", pa.struct(source)), *rows])


@dataclass(frozen=True)
class DebeziumDecoder:
    """See `schemas.codec.results.Decoder`.

    `events` reads structs of `event_type` over `columns` under their names in records, `keys` the key columns.
    `left_out` are, by type, the values that stand for one that did not change. `transactions`: those of changes are
    read, too.
    """

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    keys: StructReader
    events: StructReader
    left_out: Mapping[TypeName, frozenset[Value]]
    whole: bool
    transactions: bool
    malformed: Code
    """The code of an event whose rows are not those of its op."""

    def decode_keys(self, keys: pa.BinaryArray) -> ReadStructs:
        return self.keys.read(keys)

    def decode(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Decoded:
        count, errors = len(values), RowErrors()
        has_value = flags_of(pc.greater(pc.binary_length(values), 0))
        rows = np.flatnonzero(has_value)
        read = self.events.read(taken(values, rows))
        errors.add_of(rows, read.errors)
        events = _Events(in_order([(rows, read.structs)], count), self.whole, self.malformed)
        is_event = events.are_there & ~events.are_no_data
        events.check_ops(is_event, errors)
        is_delete = ~events.are_there & ~errors.flags(count)
        wanted = is_event | is_delete if not self.whole else is_event
        own = read_keys(self.keys, keys, wanted & ~errors.flags(count), errors)
        errors.add_of(rows, read.late)
        rows_read = [self._image(events, name, is_event, own) for name in images(whole=self.whole)]
        if self.whole:
            events.check_images(is_event, errors)
            self._check_left_out(rows_read, events, errors)
        for row in rows_read:
            found = "a row whose key columns are not those of its key"
            errors.add_where(row.other_key, InputError(Code.KEY_MISMATCH, found=found))
        return self._decoded(events, rows_read, own, is_event, is_delete, errors)

    def _image(self, events: _Events, name: str, is_event: Flags, keys: pa.StructArray) -> _Image:
        """A row of each event. The key columns are those of the key; what it has of them has to be equal."""
        structs = events.fields[name]
        is_there = flags_of(structs.is_valid()) & is_event
        own = {column.name: key for column, key in zip(self.key_columns, keys.flatten(), strict=True)}
        other, columns, left_out = np.zeros(len(is_there), np.bool_), [], dict[int, Flags]()
        for index, (column, found) in enumerate(zip(self.columns, structs.flatten(), strict=True)):
            if (key := own.get(column.name)) is not None:
                other |= flags_of(pc.not_equal(found, key)) & is_there
                columns.append(key)
                continue
            forms = self.left_out.get(column.type.name)
            is_out = flags_of(pc.is_in(found, pa.array(sorted(forms), found.type))) if forms else None
            if is_out is not None and (is_out & is_there).any():
                left_out[index] = is_out & is_there
                found = pc.if_else(pa.array(is_out), pa.scalar(None, found.type), found)
            columns.append(found)
        return _Image(columns, left_out, other)

    def _check_left_out(self, rows: Sequence[_Image], events: _Events, errors: RowErrors) -> None:
        before, _ = rows
        before.ignore(events.ops == Op.INSERT)
        for row in rows:
            for index, flags in row.left_out.items():
                found, column = "a value that the event leaves out", self.columns[index].name
                errors.add_where(flags, InputError(Code.TOAST_UNAVAILABLE, found=found, column=column))

    def _decoded(
        self,
        events: _Events,
        rows: Sequence[_Image],
        keys: pa.StructArray,
        is_event: Flags,
        is_delete: Flags,
        errors: RowErrors,
    ) -> Decoded:
        is_wrong = errors.flags(len(is_event))
        is_event, is_delete = is_event & ~is_wrong, is_delete & ~is_wrong
        without_value = NO_DATA if self.whole else Op.DELETE
        ops = np.where(is_event, events.ops, np.where(is_delete, np.int8(without_value), np.int8(NO_DATA)))
        is_change = is_event | (is_delete & (not self.whole))
        has_before = is_change & (ops == Op.DELETE if not self.whole else ops != Op.INSERT)
        before = rows[0].columns if self.whole else self._key_alone(keys)
        source = fields_of(null_where(events.fields["source"], ~is_event))
        return Decoded(
            pa.array(ops, mask=is_wrong),
            rows_of(self.columns, before, has_before),
            rows_of(self.columns, rows[-1].columns, is_change & (ops != Op.DELETE)),
            errors.by_row,
            _lists({} if self.whole else rows[-1].left_out, len(ops), ~is_event),
            source_positions(source.__getitem__),
            _transactions(source) if self.transactions else None,
        )

    def _key_alone(self, keys: pa.StructArray) -> list[pa.Array]:
        """The columns of rows of which only the key is known."""
        own = dict(zip((each.name for each in self.key_columns), keys.flatten(), strict=True))
        return [
            own[each.name] if each.name in own else pa.nulls(len(keys), each.type.arrow)
            for each in self.columns
        ]


@dataclass
class _Image:
    """A row before or after of each event. `left_out`: by the index of a column, the events that leave it out."""

    columns: Sequence[pa.Array]
    left_out: dict[int, Flags]
    other_key: Flags

    def ignore(self, flags: Flags) -> None:
        """Leave out what was found of these rows: their events have no such row."""
        self.left_out = {index: found & ~flags for index, found in self.left_out.items()}
        self.other_key &= ~flags


@dataclass
class _Events:
    """The structs of n records, null where there is no event."""

    structs: pa.StructArray
    whole: bool
    malformed: Code
    fields: dict[str, pa.Array] = field(init=False)
    are_there: Flags = field(init=False)
    ops: npt.NDArray[np.int8] = field(init=False)

    def __post_init__(self) -> None:
        self.fields, self.are_there = fields_of(self.structs), flags_of(self.structs.is_valid())
        codes = [Op.DELETE if name == DELETE else Op.INSERT for name in WHOLE_OPS]
        codes = list(WHOLE_OPS.values()) if self.whole else codes
        self._number = pc.index_in(self.fields["op"], pa.array(list(WHOLE_OPS))).fill_null(-1).to_numpy()
        self.ops = np.array([*codes, NO_DATA], np.int8)[self._number]
        self._has_after = flags_of(self.fields["after"].is_valid())

    @property
    def are_no_data(self) -> Flags:
        """Logical messages, heartbeats and ends of transactions: they have a time and no op."""
        op, has_source = self.fields["op"], flags_of(self.fields["source"].is_valid())
        is_alive = flags_of(pc.and_(op.is_null(), self.fields["has_time"])) & ~has_source & ~self._has_after
        are_no_data: Flags = flags_of(pc.equal(op, MESSAGE)) | is_alive
        return are_no_data

    def check_ops(self, is_event: Flags, errors: RowErrors) -> None:
        """An event has an op of those that change a row, and the row after that belongs to it."""
        truncate = InputError(Code.TRUNCATE_UNSUPPORTED, found="a value with a truncate")
        errors.add_where(is_event & flags_of(pc.equal(self.fields["op"], TRUNCATE)), truncate)
        unknown = InputError(Code.UNKNOWN_OP, found="a value with an op that is none of r, c, u and d")
        errors.add_where(is_event & (self._number < 0), unknown)
        wrong = is_event & (self._number >= 0) & (self._has_after != (self.ops != Op.DELETE))
        for row in np.flatnonzero(wrong):
            op = self.fields["op"][row].as_py()
            found = f"a value with an event {op} {'with' if op == DELETE else 'without'} a row after"
            errors.add(int(row), InputError(self.malformed, found=found))

    def check_images(self, is_event: Flags, errors: RowErrors) -> None:
        """Events that come with whole rows have the row before, unless they say that there was none."""
        has_before = flags_of(self.fields["before"].is_valid())
        for row in np.flatnonzero(is_event & (self.ops != Op.INSERT) & ~has_before):
            found = f"an event {self.fields['op'][row].as_py()} without a row before"
            errors.add(int(row), InputError(Code.BEFORE_MISSING, found=found))
        is_read = pc.equal(self.fields["op"], READ)
        is_incremental = pc.equal(pc.struct_field(self.fields["source"], "snapshot"), INCREMENTAL)
        found = "a row of an incremental snapshot, which may be there already"
        wrong = is_event & flags_of(pc.and_kleene(is_read, is_incremental))
        errors.add_where(wrong, InputError(Code.BEFORE_MISSING, found=found))


def _transactions(source: Mapping[str, pa.Array]) -> pa.Int64Array:
    """The transaction of each change of PostgreSQL; null for a row of a snapshot and for other connectors."""
    of_kind = pc.equal(source["connector"], POSTGRESQL)
    is_change = pc.and_(of_kind, pc.equal(source["snapshot"], STREAMED)).fill_null(False)
    return pc.if_else(is_change, source["txId"], None)


def _lists(found: Mapping[int, Flags], count: int, ignored: Flags) -> pa.ListArray:
    """A list for each record: the numbers whose flag it has, in their order."""
    numbers = sorted(found)
    table = np.zeros((count, len(numbers)), np.bool_)
    for place, number in enumerate(numbers):
        table[:, place] = found[number] & ~ignored
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(table.sum(axis=1), out=ends[1:])
    return pa.ListArray.from_arrays(ends, pa.array(np.array(numbers, np.int32)[np.nonzero(table)[1]]))
