"""The changes of one upstream partition, record by record: for `verify`, and as a model of what lanes do.

Redelivered records are left out, and values that a record leaves out are filled in. It remembers every record from the
partition's beginning. `streaming.lane.redelivered` and `streaming.lane.before` do the same by whole columns, with what
a plan and the replica hold of the past.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from schemas.position import Key
from schemas.records import Change, Op, Row, UpstreamRecord


class Redelivered:
    """Which records of one partition came before; call `has` for each record, in order."""

    def __init__(self) -> None:
        self._highest: tuple[int, int] | None = None
        self._at_highest: set[tuple[Hashable, Op]] = set()
        self._dropped_deletes: set[Hashable] = set()

    def has(self, key: Hashable, op: Op, position: tuple[int, int] | None) -> bool:
        """Whether the change of this key came before. `position` is `UpstreamRecord.position`."""
        again = self._is_known(key, op, position)
        is_its_tombstone = position is None and op is Op.DELETE and key in self._dropped_deletes
        self._dropped_deletes.discard(key)
        if again and op is Op.DELETE:
            self._dropped_deletes.add(key)
        return again or is_its_tombstone

    def _is_known(self, key: Hashable, op: Op, position: tuple[int, int] | None) -> bool:
        if position is None:
            return False
        if self._highest is not None and position < self._highest:
            return True
        if position != self._highest:
            self._highest, self._at_highest = position, set()
        known = (key, op) in self._at_highest
        self._at_highest.add((key, op))
        return known


class InOrder:
    """The state of one partition; call `take` for each record, in order."""

    def __init__(self) -> None:
        self._redelivered = Redelivered()
        self._rows: dict[Key, Row] = {}

    def take(self, key: Key, record: UpstreamRecord) -> Change | None:
        """The change with its left-out values filled in; None for no change, and for one that came again.

        Raises: LookupError for a value that is left out of a row that is not there.
        """
        change = record.change
        if change is None or self._redelivered.has(key, change.op, record.position):
            return None
        if change.after is None:
            self._rows.pop(key, None)
            return change
        after = list(change.after)
        for index in record.unchanged:
            after[index] = self._rows[key][index]
        self._rows[key] = tuple(after)
        return replace(change, after=tuple(after))
