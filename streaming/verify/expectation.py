"""The records that one output partition must hold in one interval, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from schemas.records import Op
from streaming.reading.records.forms import RowImages
from streaming.verify.fold import ChangedKey
from streaming.verify.history import TopicEntry
from streaming.verify.positions import Positions
from streaming.verify.records.rows import OutputView, WantedRecord, op_of

Records = dict[bytes, list[WantedRecord]]
"""By primary key: the records, in order; never an empty list."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One partition's part of the law for one interval.

    `newly_read` maps the keys that the positions passed to their rows at the barrier before, rows that the
    filter hides included. `changed` holds the keys that the interval changed, those above the positions
    included. `positions` are already those of the barrier that closes the interval.
    """

    newly_read: Mapping[bytes, bytes]
    changed: Mapping[bytes, ChangedKey]
    positions: Positions
    view: OutputView

    def records(self) -> Records:
        """Everything that must be there. Keys of which nothing must be there are left out."""
        wanted: Records = {}
        for key, row in self.newly_read.items():
            if read := self.view.records(key, None, row):
                wanted[key] = read
        for key, changed in self.changed.items():
            records = self._live(changed)
            if records:
                wanted.setdefault(key, []).extend(records)
        return wanted

    def of(self, key: bytes) -> list[WantedRecord]:
        """The records of one primary key (in canonical form) that must be there."""
        row, changed = self.newly_read.get(key), self.changed.get(key)
        read = [] if row is None else self.view.records(key, None, row)
        return read if changed is None else [*read, *self._live(changed)]

    def without_needless(self, key: bytes, records: list[WantedRecord]) -> list[WantedRecord]:
        """The records of a key, without deletes of absent rows if the upstream has sent such deletes, too.

        For outputs whose deletes do not say what was there (docs/contract.md#the-law).
        """
        changed = self.changed.get(key)
        may_be = self.view.rows_before is not RowImages.FULL and not self.view.is_keyed
        left = changed.needless if changed is not None and may_be else 0
        kept: list[WantedRecord] = []
        is_absent = changed is None or key in self.newly_read or changed.row_before is None
        for record in records:
            is_delete = op_of(record.value) is Op.DELETE
            if is_delete and is_absent and left:
                left -= 1
                continue
            kept.append(record)
            is_absent = is_delete
        return kept

    def _live(self, changed: ChangedKey) -> list[WantedRecord]:
        live = changed.live
        if not self.positions.covers(live.vnode, live.order):
            return []
        return [record for rows in changed.changes for record in self.view.records(live.key, *rows)]


def cross_off(
    wanted: Records, there: Iterable[TopicEntry], primary: Callable[[bytes], bytes]
) -> set[bytes | None]:
    """Take out of `wanted` what is there, byte for byte and in order. `primary` gives the primary key of a record's.

    Returns the primary keys with something else there, too.
    """
    odd: set[bytes | None] = set()
    for entry in there:
        key = None if entry.key is None else primary(entry.key)
        records = wanted.get(key) if key is not None else None
        if key is None or records is None or records[0] != (entry.key, entry.value):
            odd.add(key)
        elif len(records) == 1:
            del wanted[key]
        else:
            del records[0]
    return odd
