"""What a change event of Debezium says, in whatever encoding: which there are, and where in a log they stand.

Source: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import Code, InputError
from schemas.formats.protocol import Rows
from schemas.position import Key
from schemas.records import Change, Op
from schemas.table import Column
from schemas.types import Value

UPSERTS, DELETE, TRUNCATE, MESSAGE = ("r", "c", "u"), "d", "t", "m"
COMPARABLE = "postgresql"
"""The connector whose positions rise in a partition but for what comes again."""
SEQUENCE = r'\["([0-9]{1,19})","([0-9]{1,19})"\]'

_LONG_MAX = 2**63 - 1


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


def position_of(source: Mapping[str, Any], lsn: int | None) -> tuple[int, int] | None:
    """Where a change stands in its database's log; None where that can't be compared."""
    sequence = re.fullmatch(SEQUENCE, source.get("sequence") or "")
    if source.get("connector") != COMPARABLE or source.get("snapshot") != "false":
        return None
    if sequence is None or lsn is None or (commit := int(sequence[1])) > _LONG_MAX:
        return None
    return commit, lsn


class EventRows(Rows):
    """What encodings have in common. An INSERT here only says what the row is now."""

    def __init__(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._columns, self._key_columns = tuple(columns), tuple(key_columns)
        self._keys = frozenset(column.name for column in key_columns)

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

    def _delete(self, keys: Mapping[str, Value]) -> Change:
        return Change(Op.DELETE, tuple(keys.get(column.name) for column in self._columns), None)

    def _insert(self, keys: Mapping[str, Value], row: dict[str, Value], where: str | None) -> Change:
        for name, found in row.items():
            if name in keys and found is not None and found != keys[name]:
                raise mismatch("a row whose key columns are not those of its key", where)
        row |= keys
        return Change(Op.INSERT, None, tuple(row.get(column.name) for column in self._columns))


def mismatch(found: str, where: str | None) -> InputError:
    """Of a key."""
    return InputError(Code.KEY_MISMATCH, where=where, found=found)
