"""The changes of one partition in canonical form, in order: some come again, and some leave values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from schemas.avro.codec import ChangeCodec
from schemas.errors import InputError
from schemas.formats.in_order import Redelivered
from schemas.records import Op, Row
from streaming.verify.findings import RecordFault
from streaming.verify.history import Entry
from streaming.verify.records.rows import op_of


class Recoded(NamedTuple):
    """A record in canonical form, None where it says nothing of the table, and what it has beside its change.

    `position` and `unchanged` are those of `UpstreamRecord`.
    """

    entry: Entry | None
    position: tuple[int, int] | None = None
    unchanged: Sequence[int] = ()


class ChangesInOrder:
    """The state of one partition; call `take` for each record, in order. `fills`: whether values may be left out.

    It remembers each row then, encoded.
    """

    def __init__(self, changes: ChangeCodec, *, fills: bool) -> None:
        self._changes, self._fills = changes, fills
        self._redelivered = Redelivered()
        self._stored: dict[bytes, bytes] = {}

    def take(self, record: Recoded) -> Entry | None:
        """The change, with the values that it leaves out; None for no change, and for one that came again."""
        entry = record.entry
        if entry is None or (op := op_of(entry.value or b"")) is None:
            return entry
        key = entry.key or b""
        if self._redelivered.has(key, op, record.position):
            return None
        if op is Op.DELETE:
            self._stored.pop(key, None)
        elif self._fills:
            if record.unchanged:
                entry = self._filled(entry, self._stored.get(key), record.unchanged)
            self._stored[key] = entry.value or b""
        return entry

    def _filled(self, entry: Entry, stored: bytes | None, unchanged: Sequence[int]) -> Entry:
        """At fault where there is no row that the values can be from."""
        change, before = self._changes.decode(entry.value or b""), self._row(stored)
        if change.after is None or before is None:
            return at_fault(entry)
        after = list(change.after)
        for index in unchanged:
            after[index] = before[index]
        return entry._replace(value=self._changes.encode(replace(change, after=tuple(after))))

    def _row(self, stored: bytes | None) -> Row | None:
        return self._changes.decode(stored).after if stored else None


def at_fault(entry: Entry, error: InputError | None = None) -> Entry:
    """A record that is none of its format: it has no value, and is what it came as."""
    given = entry.given or (entry.key, entry.value)
    fault = None if error is None else RecordFault.of(error)
    return entry._replace(key=given[0], value=b"", given=given, fault=fault)
