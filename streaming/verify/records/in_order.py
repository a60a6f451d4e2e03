"""The changes of one partition in canonical form, in order: some are redelivered, and some leave values out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from schemas.avro.codec import ChangeCodec
from schemas.codec.logs import LogId, LogPosition
from schemas.errors import InputError
from schemas.records import Op, Row
from streaming.verify.findings import RecordFault
from streaming.verify.history import Entry
from streaming.verify.records.redelivered import Redelivered, WentBack
from streaming.verify.records.rows import op_of


class Recoded(NamedTuple):
    """A record in canonical form, None where it says nothing of the table, and what it has beside its change.

    `position` and `unchanged` are those of `UpstreamRecord`.
    """

    entry: Entry | None
    position: LogPosition | None = None
    unchanged: Sequence[int] = ()


SnapshotRows = dict[bytes, set[LogId]]
"""By the header of the barrier that closes an interval, the rows of snapshots in it, of all partitions."""
OnWentBack = Callable[[int, WentBack], None]
"""Called with the offset of a record that was taken though its log has gone back."""


class ChangesInOrder:
    """The state of one partition; call `take` for each record and `end_interval` for each barrier, in order.

    `fills`: whether values may be left out; it remembers each row then, encoded. `snapshots` is shared by the
    partitions of a topic, which are read from barrier to barrier.
    """

    def __init__(
        self, changes: ChangeCodec, *, fills: bool, snapshots: SnapshotRows, on_went_back: OnWentBack
    ) -> None:
        self._changes, self._fills = changes, fills
        self._redelivered = Redelivered()
        self._stored: dict[bytes, bytes] = {}
        self._snapshots, self._on_went_back = snapshots, on_went_back
        self._ended: bytes | None = None

    def end_interval(self, barrier: bytes) -> None:
        """At a barrier. What stands in other partitions is known once these were read up to it."""
        self._settle()
        self._snapshots.setdefault(barrier, set()).update(self._redelivered.snapshots)
        self._ended = barrier

    def _settle(self) -> None:
        if self._ended is not None:
            self._redelivered.end_interval(self._snapshots[self._ended])
            self._ended = None

    def take(self, record: Recoded) -> Entry | None:
        """The change, with the values that it leaves out; None for no change, and for a redelivered one."""
        entry = record.entry
        if entry is None or (op := op_of(entry.value or b"")) is None:
            return entry
        key = entry.key or b""
        self._settle()
        if self._redelivered.has(key, op, record.position):
            return None
        if self._redelivered.went_back is not None:
            self._on_went_back(entry.offset, self._redelivered.went_back)
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
