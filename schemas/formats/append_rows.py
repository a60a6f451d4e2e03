"""Rows of the output format `append`, one by one. Keys are not looked at: every key, and none, is the empty one."""

from __future__ import annotations

from schemas.errors import Code, InputError
from schemas.formats.outputs.halves import Values
from schemas.formats.protocol import Origin, OutputRows
from schemas.position import Key
from schemas.records import Change, Op, Row


class WrittenRows(OutputRows):
    """An output's rows; each record has a value."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """The empty one."""
        return ()

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `Values.read`; TOMBSTONE_UNSUPPORTED."""
        if value is None:
            raise InputError(Code.TOMBSTONE_UNSUPPORTED, where=where, found="a null value")
        return Change(Op.INSERT, None, self._values.read(value, where))

    def write_key(self, key: Key) -> bytes:
        """Nothing: what is sent is the key that came."""
        return b""

    def write_insert(self, row: Row, origin: Origin) -> bytes:
        return self._values.write(row)

    def write_change(self, change: Change, origin: Origin) -> bytes:
        return self._values.write(change.row)
