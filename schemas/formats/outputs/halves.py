"""Keys and values of outputs one by one: the common parts of the references of all encodings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from schemas.errors import Code, InputError
from schemas.formats.outputs.envelope import LETTERS, READ, own_version
from schemas.formats.protocol import Origin, OutputRows
from schemas.position import Key
from schemas.records import Change, Op, Row, UpstreamRecord
from schemas.table import Column
from schemas.types import Value


class Keys(Protocol):
    """Reads and writes keys in one encoding."""

    columns: Sequence[Column]

    def read(self, data: bytes | None, where: str | None) -> Key:
        """Raises: InputError: KEY_MISMATCH for what is no key in this form, PK_NULL, and as values do."""

    def write(self, key: Key) -> bytes:
        """ValueError or TypeError for a key that the columns can't hold."""


class Values(Protocol):
    """Reads and writes rows. Each row has one form; any other is refused."""

    def read(self, data: bytes, where: str | None) -> Row:
        """Raises: InputError."""

    def write(self, row: Row) -> bytes:
        """ValueError or TypeError for a row that the columns can't hold."""


class Events(Protocol):
    """Reads and writes envelopes. Each event has one form; any other is refused."""

    def read(self, data: bytes, where: str | None) -> Change:
        """Raises: InputError."""

    def write(self, letter: str, change: Change, origin: Origin, by: str) -> bytes:
        """Writes as a program of version `by` does. ValueError or TypeError for rows that the columns can't hold."""


class UpsertRows(OutputRows):
    """Rows and keys, see `formats.protocol.Rows`. An INSERT here only says what the row is now."""

    def __init__(self, columns: Sequence[Column], keys: Keys, values: Values) -> None:
        self._columns, self._keys, self._values = tuple(columns), keys, values

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """Raises: InputError as `Keys.read`."""
        return self._keys.read(data, where)

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `read_key` and `Values.read`."""
        keys = _by_name(self._keys, self._keys.read(key, where))
        if value is None:
            return Change(Op.DELETE, tuple(keys.get(column.name) for column in self._columns), None)
        row = self._values.read(value, where)
        _check_keys(keys, self._columns, row, where)
        return Change(Op.INSERT, None, row)

    def write_key(self, key: Key) -> bytes:
        return self._keys.write(key)

    def write_insert(self, row: Row, origin: Origin) -> bytes:
        return self._values.write(row)

    def write_change(self, change: Change, origin: Origin) -> bytes | None:
        return None if change.op is Op.DELETE else self._values.write(change.row)


class EventRows(OutputRows):
    """Events and keys, see `formats.protocol.Rows`."""

    def __init__(self, columns: Sequence[Column], keys: Keys, events: Events, *, tombstones: bool) -> None:
        self._columns, self._keys, self._events = tuple(columns), keys, events
        self._tombstones = tombstones

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """Raises: InputError as `Keys.read`."""
        return self._keys.read(data, where)

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Same as `read_record`; ValueError for the null after a delete, which is no change."""
        change = self.read_record(key, value, where=where).change
        if change is None:
            raise ValueError("a record that is no change")
        return change

    def read_record(
        self, key: bytes | None, value: bytes | None, *, where: str | None = None
    ) -> UpstreamRecord:
        """Raises: InputError as `read_key` and `Events.read`; TOMBSTONE_UNSUPPORTED."""
        keys = _by_name(self._keys, self._keys.read(key, where))
        if value is None:
            if not self._tombstones:
                raise InputError(Code.TOMBSTONE_UNSUPPORTED, where=where, found="a null value")
            return UpstreamRecord(None)
        change = self._events.read(value, where)
        for row in (change.before, change.after):
            if row is not None:
                _check_keys(keys, self._columns, row, where)
        return UpstreamRecord(change)

    def write_key(self, key: Key) -> bytes:
        return self._keys.write(key)

    def write_insert(self, row: Row, origin: Origin) -> bytes:
        return self._events.write(READ, Change(Op.INSERT, None, row), origin, own_version())

    def write_change(self, change: Change, origin: Origin) -> bytes:
        return self._events.write(LETTERS[change.op], change, origin, own_version())


def mismatch(found: str, where: str | None) -> InputError:
    """The error for a record with a wrong key."""
    return InputError(Code.KEY_MISMATCH, where=where, found=found)


def _by_name(keys: Keys, key: Key) -> dict[str, Value]:
    return {column.name: each for column, each in zip(keys.columns, key, strict=True)}


def _check_keys(keys: Mapping[str, Value], columns: Sequence[Column], row: Row, where: str | None) -> None:
    """Raises: InputError(KEY_MISMATCH) for a row whose key columns, as far as it has them, are others."""
    found = {column.name: value for column, value in zip(columns, row, strict=True)}
    if any(name in found and found[name] != value for name, value in keys.items()):
        raise mismatch("a row whose key columns are not those of its key", where)
