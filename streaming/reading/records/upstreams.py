"""Records of an upstream in the forms `upsert`, `append` and `debezium`, in JSON and in Avro by a registry.

JsonRecords, AvroRecords            keys, rows and events in one encoding
Upserts, Appended, ChangeEvents     what they say of the table
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from schemas.errors import Code, InputError
from schemas.kinds.columns import in_records
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column
from streaming.reading.records.forms import ReadRecord, RecordForm
from streaming.reading.records.logs import INCREMENTAL, place_in_log
from streaming.reading.values.invalid import InvalidRecordError

_MESSAGE, _TRUNCATE = "m", "t"
EVENT_OPS = {"r": Op.INSERT, "c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE}
_READ = "r"


class EventRow(NamedTuple):
    """A row of an event, and by index the columns that it leaves out because their value is what it was."""

    values: Sequence[Any]
    left_out: tuple[int, ...] = ()


class Event(NamedTuple):
    """An event by its op, its fields as their encoding has them, and what its encoding needs to read its rows."""

    op: str | None
    fields: Mapping[str, Any]
    plan: Any = None


class UpstreamEncoding(ABC):
    """Reads the parts of records in one encoding. Columns have their names in records, and None for what is missing."""

    general: Code
    """Of a value that is wrong in a way without a code of its own."""

    @abstractmethod
    def key(self, data: bytes) -> Key:
        """The key columns, in key order. Raises: InvalidRecordError."""

    @abstractmethod
    def row(self, data: bytes) -> Sequence[Any] | None:
        """A row; None where the record says that there is none. Raises: InvalidRecordError."""

    @abstractmethod
    def event(self, data: bytes) -> Event | None:
        """An event whose rows are not read yet; None for a null in a frame. Raises: InvalidRecordError."""

    @abstractmethod
    def source(self, value: Any) -> Mapping[str, Any]:
        """The fields of an event's source. Raises: InvalidRecordError."""

    @abstractmethod
    def event_row(self, value: Any, plan: Any) -> EventRow:
        """The row that an event has `before` or `after`. Raises: InvalidRecordError."""


class UpstreamReader(ABC):
    """Reads records of an upstream. `where` is their place in errors."""

    @abstractmethod
    def key(self, data: bytes | None, *, where: str | None = None) -> Key:
        """A record's key. Raises: InputError."""

    @abstractmethod
    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        """A record. Raises: InputError."""


class Appended(UpstreamReader):
    """Rows without identity. A null is no row."""

    def __init__(self, records: UpstreamEncoding) -> None:
        self._records = records

    def key(self, data: bytes | None, *, where: str | None = None) -> Key:
        """The empty one: keys are not read."""
        return ()

    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        try:
            row = None if value is None else self._records.row(value)
        except InvalidRecordError as reason:
            raise reason.as_input(self._records.general, "a value", where) from None
        return ReadRecord(None if row is None else Change(Op.INSERT, None, tuple(row)))


class KeyedReader(UpstreamReader):
    """Records whose key names their row."""

    def __init__(
        self,
        form: RecordForm,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        records: UpstreamEncoding,
    ) -> None:
        self._records = records
        self._may_be_empty, self._is_whole = form.key == "text", form.before == "full"
        self._names = [column.name for column in in_records(columns)]
        self._key_indices = [self._names.index(column.name) for column in in_records(key_columns)]
        self._nulls = [None] * len(self._names)

    def key(self, data: bytes | None, *, where: str | None = None) -> Key:
        """Raises: InputError: KEY_MISMATCH for what is no key in this form, PK_NULL, and as values do."""
        if data is None or not (data or self._may_be_empty):
            raise mismatched("a record without a key", where)
        try:
            keys = self._records.key(data)
        except InvalidRecordError as reason:
            raise reason.as_input(Code.KEY_MISMATCH, "a key", where) from None
        if None in keys:
            raise InputError(Code.PK_NULL, where=where, found="a null in a key column")
        return keys

    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        try:
            return self._record(key, value, where)
        except InvalidRecordError as reason:
            raise reason.as_input(self._records.general, "a value", where) from None

    @abstractmethod
    def _record(self, key: bytes | None, value: bytes | None, where: str | None) -> ReadRecord:
        """A record. Raises: InputError, InvalidRecordError."""

    def _row(self, keys: Key, values: Sequence[Any], where: str | None) -> Row:
        """All columns; those of the key are its, and what the value says of them has to be the same."""
        row = list(values)
        for index, key in zip(self._key_indices, keys, strict=True):
            if row[index] != key:
                if row[index] is not None:
                    raise mismatched("a value whose key columns are not those of its key", where)
                row[index] = key
        return tuple(row)

    def _delete(self, keys: Key, where: str | None) -> Change:
        return Change(Op.DELETE, self._row(keys, self._nulls, where), None)


class Upserts(KeyedReader):
    """Each record says what the row of its key is now, or that there is none."""

    def _record(self, key: bytes | None, value: bytes | None, where: str | None) -> ReadRecord:
        keys = self.key(key, where=where)
        values = self._records.row(value) if value else None
        if values is None:
            return ReadRecord(self._delete(keys, where), key=keys)
        return ReadRecord(Change(Op.INSERT, None, self._row(keys, values, where)), key=keys)


class ChangeEvents(KeyedReader):
    """Change events of Debezium's connectors. Without rows before, an INSERT only says what the row is now."""

    def _record(self, key: bytes | None, value: bytes | None, where: str | None) -> ReadRecord:
        event = self._records.event(value) if value else None
        if event is None:
            # With rows before, the event in front of this one has said so.
            if self._is_whole:
                return ReadRecord(None)
            keys = self.key(key, where=where)
            return ReadRecord(self._delete(keys, where), key=keys)
        fields = event.fields
        if _is_no_data(event):
            return ReadRecord(None)
        op, source = _checked_op(event), fields.get("source")
        origin: Mapping[str, Any] = {} if source is None else self._records.source(source)
        keys = self.key(key, where=where)
        before, after = (
            None if (row := fields.get(name)) is None else self._records.event_row(row, event.plan)
            for name in ("before" if self._is_whole else "", "after")
        )
        place = place_in_log(origin)
        if self._is_whole:
            if op == _READ and origin.get("snapshot") == INCREMENTAL:
                found = "a row of an incremental snapshot, which may be there already"
                raise InputError(Code.BEFORE_MISSING, where=where, found=found)
            return ReadRecord(self._whole_change(op, before, after, keys, where), (), place, keys)
        if after is None:
            return ReadRecord(self._delete(keys, where), (), place, keys)
        row = self._row(keys, after.values, where)
        return ReadRecord(Change(Op.INSERT, None, row), after.left_out, place, keys)

    def _whole_change(
        self, letter: str, before: EventRow | None, after: EventRow | None, keys: Key, where: str | None
    ) -> Change:
        op = EVENT_OPS[letter]
        if op is Op.INSERT:
            before = None
        elif before is None:
            found = f"an event {letter} without a row before"
            raise InputError(Code.BEFORE_MISSING, where=where, found=found)
        for row in (before, after):
            if row is not None and row.left_out:
                found, column = "a value that the event leaves out", self._names[row.left_out[0]]
                raise InputError(Code.TOAST_UNAVAILABLE, where=where, found=found, column=column)
        return Change(
            op, *(None if row is None else self._row(keys, row.values, where) for row in (before, after))
        )


def _is_no_data(event: Event) -> bool:
    """True for a logical message, a heartbeat or the end of a transaction, which has a time and no op."""
    if event.op is not None:
        return event.op == _MESSAGE
    has_time, *others = (event.fields.get(name) is not None for name in ("ts_ms", "after", "source"))
    return has_time and not any(others)


def _checked_op(event: Event) -> str:
    if event.op == _TRUNCATE:
        raise InvalidRecordError("a truncate", Code.TRUNCATE_UNSUPPORTED)
    if event.op is None or event.op not in EVENT_OPS:
        raise InvalidRecordError("an op that is none of r, c, u and d", Code.UNKNOWN_OP)
    has_after = event.fields.get("after") is not None
    if has_after == (EVENT_OPS[event.op] is Op.DELETE):
        raise InvalidRecordError(f"an event {event.op} {'with' if has_after else 'without'} a row after")
    return event.op


def mismatched(found: str, where: str | None) -> InputError:
    """The error for a record with another key than it has to have."""
    return InputError(Code.KEY_MISMATCH, where=where, found=found)
