"""Change events of Debezium, apart from their encoding: the kinds of events, and what they say of a row.

Source: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from schemas.errors import Code, InputError
from schemas.formats.events.logs import INCREMENTAL, POSTGRESQL, STREAMED, LogPosition
from schemas.formats.protocol import Rows
from schemas.position import Key
from schemas.records import Change, Op, Row, UpstreamRecord
from schemas.table import Column
from schemas.types import Value

UPSERTS, DELETE, TRUNCATE, MESSAGE = ("r", "c", "u"), "d", "t", "m"
READ, CREATE, UPDATE = UPSERTS
WHOLE_OPS = {READ: Op.INSERT, CREATE: Op.INSERT, UPDATE: Op.UPDATE, DELETE: Op.DELETE}
"""The ops of events that come with whole rows."""


def halves(*, whole: bool) -> tuple[str, ...]:
    """Which rows are read of an event: that before it only if `whole`."""
    return ("before", "after") if whole else ("after",)


class EventError(ValueError):
    """Why a record is no event of a table; the code is None where it is malformed."""

    def __init__(self, reason: str, code: Code | None = None) -> None:
        self.code = code
        super().__init__(reason)


def check_op(op: str | None, *, has_after: bool) -> str:
    """The op of an event that changes a row. Raises: EventError, also for one with another half than its op's."""
    if op == TRUNCATE:
        raise EventError("a truncate", Code.TRUNCATE_UNSUPPORTED)
    if op is None or op not in (*UPSERTS, DELETE):
        raise EventError("an op that is none of r, c, u and d", Code.UNKNOWN_OP)
    if has_after != (op != DELETE):
        raise EventError(f"an event {op} {'with' if op == DELETE else 'without'} a row after")
    return op


def transaction_of(source: Mapping[str, Any], number: int | None) -> int | None:
    """The transaction that made a change; None where the event is no change of PostgreSQL, but a row of a snapshot."""
    is_change = source.get("connector") == POSTGRESQL and source.get("snapshot") == STREAMED
    return number if is_change else None


class Half(NamedTuple):
    """A row of an event by column, and the indices of the columns that it leaves out."""

    row: dict[str, Value]
    left_out: tuple[int, ...] = ()


class Event(NamedTuple):
    """An event that changes a row. `before` is None where it is not read."""

    op: str
    before: Half | None
    after: Half | None
    position: LogPosition | None
    snapshot: str | None
    transaction: int | None = None


class EventRows(Rows):
    """The part of the readers that encodings share.

    An INSERT only says what the row is now; if `whole`, events come with the row before, and it says that none was.
    """

    def __init__(self, columns: Sequence[Column], key_columns: Sequence[Column], *, whole: bool) -> None:
        self._columns, self._key_columns = tuple(columns), tuple(key_columns)
        self._keys, self._whole = frozenset(column.name for column in key_columns), whole

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """Raises: InputError: KEY_MISMATCH for what is no key in this form, PK_NULL, and as values do."""
        return tuple(self._key(data, where).values())

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """As `read_record`; ValueError for one that is no data."""
        change = self.read_record(key, value, where=where).change
        if change is None:
            raise ValueError("a record that is no data")
        return change

    @abstractmethod
    def _key(self, data: bytes | None, where: str | None) -> dict[str, Value]:
        """The key columns, in key order. Raises: as `read_key`."""

    def _without_value(self, key: bytes | None, where: str | None) -> UpstreamRecord:
        """A null value: the row is deleted; with whole rows the event before it said so, and this is no change."""
        return UpstreamRecord(None if self._whole else self._delete(self._key(key, where)))

    def _record(self, event: Event, keys: Mapping[str, Value], where: str | None) -> UpstreamRecord:
        if self._whole:
            return UpstreamRecord(self._whole_change(event, keys, where), position=event.position)
        if event.after is None:
            change = self._delete(keys)
            left_out: tuple[int, ...] = ()
        else:
            change = Change(Op.INSERT, None, self._row_of(keys, event.after, where))
            left_out = event.after.left_out
        return UpstreamRecord(change, left_out, event.position, event.transaction)

    def _whole_change(self, event: Event, keys: Mapping[str, Value], where: str | None) -> Change:
        op = WHOLE_OPS[event.op]
        if op is not Op.INSERT and event.before is None:
            found = f"an event {event.op} without a row before"
            raise InputError(Code.BEFORE_MISSING, where=where, found=found)
        if event.op == READ and event.snapshot == INCREMENTAL:
            found = "a row of an incremental snapshot, which may be there already"
            raise InputError(Code.BEFORE_MISSING, where=where, found=found)
        before = None if op is Op.INSERT else event.before
        for half in (before, event.after):
            if half is not None and half.left_out:
                found, column = "a value that the event leaves out", self._columns[half.left_out[0]].name
                raise InputError(Code.TOAST_UNAVAILABLE, where=where, found=found, column=column)
        rows = (None if half is None else self._row_of(keys, half, where) for half in (before, event.after))
        return Change(op, *rows)

    def _delete(self, keys: Mapping[str, Value]) -> Change:
        return Change(Op.DELETE, tuple(keys.get(column.name) for column in self._columns), None)

    def _row_of(self, keys: Mapping[str, Value], half: Half, where: str | None) -> Row:
        for name, key in keys.items():
            if half.row.get(name) is not None and half.row[name] != key:
                raise mismatch("a row whose key columns are not those of its key", where)
        row = {**half.row, **keys}
        return tuple(row.get(column.name) for column in self._columns)


def mismatch(found: str, where: str | None) -> InputError:
    """The error for a record with a wrong key."""
    return InputError(Code.KEY_MISMATCH, where=where, found=found)
