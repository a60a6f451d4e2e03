"""Records of an upstream in the forms `upsert`, `append` and `debezium`, in JSON and in Avro by a registry.

JsonRecords, AvroRecords      keys, rows and events in one encoding
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

Values = dict[str, Any]
"""By the name in records; what a record lacks is not there."""

_MESSAGE, _TRUNCATE = "m", "t"
_OPS = {"r": Op.INSERT, "c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE}
_READ = "r"


class EventRow(NamedTuple):
    """A row of an event, and by index the columns that it leaves out because their value is what it was."""

    values: Values
    left_out: tuple[int, ...] = ()


class ChangeEvent(NamedTuple):
    """An event that changes a row, with the rows that it has."""

    op: str
    before: EventRow | None
    after: EventRow | None
    snapshot: str | None


class EncodedRecords(ABC):
    """Reads the parts of records in one encoding. Columns have their names in records."""

    general: Code
    """Of a value that is wrong in a way without a code of its own."""

    @abstractmethod
    def key(self, data: bytes) -> Values:
        """The key columns, in key order. Raises: InvalidRecordError."""

    @abstractmethod
    def row(self, data: bytes) -> Values | None:
        """A row; None where the record says that there is none. Raises: InvalidRecordError."""

    @abstractmethod
    def envelope(self, data: bytes) -> Envelope | None:
        """An event whose rows are not read yet; None for a null in a frame. Raises: InvalidRecordError."""


class Envelope(ABC):
    """An event in one encoding."""

    op: str | None
    has_time: bool
    has_source: bool
    has_after: bool

    @abstractmethod
    def source(self) -> Mapping[str, Any]:
        """The fields of its source that positions are made of, as far as it has them. Raises: InvalidRecordError."""

    @abstractmethod
    def row(self, name: str) -> EventRow | None:
        """The row `before` or `after`. Raises: InvalidRecordError."""


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

    def __init__(self, form: RecordForm, columns: Sequence[Column], records: EncodedRecords) -> None:
        self._names, self._records = [column.name for column in in_records(columns)], records

    def key(self, data: bytes | None, *, where: str | None = None) -> Key:
        """The empty one: keys are not read."""
        return ()

    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        if value is None:
            return ReadRecord(None)
        try:
            row = self._records.row(value)
        except InvalidRecordError as reason:
            raise reason.as_input(self._records.general, "a value", where) from None
        return ReadRecord(None if row is None else Change(Op.INSERT, None, tuple(map(row.get, self._names))))


class KeyedReader(UpstreamReader):
    """Records whose key names their row."""

    def __init__(
        self,
        form: RecordForm,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        records: EncodedRecords,
    ) -> None:
        self._form, self._records = form, records
        self._names = [column.name for column in in_records(columns)]
        self._key_names = [column.name for column in in_records(key_columns)]

    def key(self, data: bytes | None, *, where: str | None = None) -> Key:
        """Raises: InputError: KEY_MISMATCH for what is no key in this form, PK_NULL, and as values do."""
        return tuple(self._key(data, where).values())

    def _key(self, data: bytes | None, where: str | None) -> Values:
        if data is None or not (data or self._form.key == "text"):
            raise mismatched("a record without a key", where)
        try:
            keys = self._records.key(data)
        except InvalidRecordError as reason:
            raise reason.as_input(Code.KEY_MISMATCH, "a key", where) from None
        if None in keys.values():
            raise InputError(Code.PK_NULL, where=where, found="a null in a key column")
        return keys

    def _row(self, keys: Values, values: Values, where: str | None) -> Row:
        """All columns; those of the key are its, and what the value says of them has to be the same."""
        for name, key in keys.items():
            if values.get(name) is not None and values[name] != key:
                raise mismatched("a value whose key columns are not those of its key", where)
        return tuple(map({**values, **keys}.get, self._names))

    def _delete(self, keys: Values) -> Change:
        return Change(Op.DELETE, tuple(map(keys.get, self._names)), None)


class Upserts(KeyedReader):
    """Each record says what the row of its key is now, or that there is none."""

    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        keys = self._key(key, where)
        try:
            values = self._records.row(value) if value else None
        except InvalidRecordError as reason:
            raise reason.as_input(self._records.general, "a value", where) from None
        if values is None:
            return ReadRecord(self._delete(keys), key=tuple(keys.values()))
        change = Change(Op.INSERT, None, self._row(keys, values, where))
        return ReadRecord(change, key=tuple(keys.values()))


class ChangeEvents(KeyedReader):
    """Change events of Debezium's connectors. Without rows before, an INSERT only says what the row is now."""

    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        try:
            envelope = self._records.envelope(value) if value else None
            if envelope is None:
                # With rows before, the event in front of this one has said so.
                if self._is_whole:
                    return ReadRecord(None)
                keys = self._key(key, where)
                return ReadRecord(self._delete(keys), key=tuple(keys.values()))
            if _is_no_data(envelope):
                return ReadRecord(None)
            op, source = _checked_op(envelope), envelope.source()
            keys = self._key(key, where)
            before, after = envelope.row("before") if self._is_whole else None, envelope.row("after")
        except InvalidRecordError as reason:
            raise reason.as_input(self._records.general, "a value", where) from None
        place, own_key = place_in_log(source), tuple(keys.values())
        if self._is_whole:
            event = ChangeEvent(op, before, after, source.get("snapshot"))
            return ReadRecord(self._whole_change(event, keys, where), (), place, own_key)
        if after is None:
            return ReadRecord(self._delete(keys), (), place, own_key)
        row = self._row(keys, after.values, where)
        return ReadRecord(Change(Op.INSERT, None, row), after.left_out, place, own_key)

    @property
    def _is_whole(self) -> bool:
        return self._form.before == "full"

    def _whole_change(self, event: ChangeEvent, keys: Values, where: str | None) -> Change:
        op = _OPS[event.op]
        if op is not Op.INSERT and event.before is None:
            raise InputError(
                Code.BEFORE_MISSING, where=where, found=f"an event {event.op} without a row before"
            )
        if event.op == _READ and event.snapshot == INCREMENTAL:
            found = "a row of an incremental snapshot, which may be there already"
            raise InputError(Code.BEFORE_MISSING, where=where, found=found)
        before = None if op is Op.INSERT else event.before
        for row in (before, event.after):
            if row is not None and row.left_out:
                found, column = "a value that the event leaves out", self._names[row.left_out[0]]
                raise InputError(Code.TOAST_UNAVAILABLE, where=where, found=found, column=column)
        return Change(
            op,
            *(None if row is None else self._row(keys, row.values, where) for row in (before, event.after)),
        )


def _is_no_data(event: Envelope) -> bool:
    """True for a logical message, a heartbeat or the end of a transaction, which has a time and no op."""
    if event.op is not None:
        return event.op == _MESSAGE
    return event.has_time and not event.has_after and not event.has_source


def _checked_op(event: Envelope) -> str:
    if event.op == _TRUNCATE:
        raise InvalidRecordError("a truncate", Code.TRUNCATE_UNSUPPORTED)
    if event.op is None or event.op not in _OPS:
        raise InvalidRecordError("an op that is none of r, c, u and d", Code.UNKNOWN_OP)
    if event.has_after == (_OPS[event.op] is Op.DELETE):
        raise InvalidRecordError(
            f"an event {event.op} {'with' if event.has_after else 'without'} a row after"
        )
    return event.op


def mismatched(found: str, where: str | None) -> InputError:
    """The error for a record with another key than it has to have."""
    return InputError(Code.KEY_MISMATCH, where=where, found=found)
