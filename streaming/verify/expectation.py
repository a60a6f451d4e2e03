"""The records that one output partition must hold in one interval, as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from schemas.records import Op
from streaming.reading.records.forms import RowImages
from streaming.verify.fold import ChangedKey
from streaming.verify.history import TopicEntry
from streaming.verify.positions import Positions
from streaming.verify.records.rows import OutputView, op_of

Records = dict[bytes, list[bytes]]
"""By key: the records, in order; never an empty list."""


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
        show = self.view.of
        for key, row in self.newly_read.items():
            record = self.view.change(None, show(row))
            if record is not None:
                wanted[key] = [record]
        for key, changed in self.changed.items():
            records = self._live(changed)
            if records:
                wanted.setdefault(key, []).extend(records)
        return wanted

    def of(self, key: bytes) -> list[bytes]:
        """The records of one key (in canonical form) that must be there."""
        read = self.view.change(None, self.view.of(self.newly_read.get(key)))
        changed = self.changed.get(key)
        live = [] if changed is None else self._live(changed)
        return live if read is None else [read, *live]

    def without_needless(self, key: bytes, records: list[bytes]) -> list[bytes]:
        """The records of a key, without deletes of absent rows if the upstream has sent such deletes, too.

        For outputs whose deletes do not say what was there (docs/contract.md#the-law).
        """
        changed = self.changed.get(key)
        left = 0 if changed is None or self.view.rows_before is RowImages.FULL else changed.needless
        kept: list[bytes] = []
        is_absent = changed is None or key in self.newly_read or changed.row_before is None
        for record in records:
            is_delete = op_of(record) is Op.DELETE
            if is_delete and is_absent and left:
                left -= 1
                continue
            kept.append(record)
            is_absent = is_delete
        return kept

    def _live(self, changed: ChangedKey) -> list[bytes]:
        if not self.positions.covers(changed.live.vnode, changed.live.order):
            return []
        show = self.view.of
        records = (self.view.change(show(before), show(after)) for before, after in changed.changes)
        return [record for record in records if record is not None]


def cross_off(wanted: Records, there: Iterable[TopicEntry]) -> set[bytes | None]:
    """Take out of `wanted` what is there, byte for byte and in order.

    Returns the keys with something else there, too.
    """
    odd: set[bytes | None] = set()
    for entry in there:
        key = entry.key
        records = wanted.get(key) if key is not None else None
        if key is None or records is None or records[0] != entry.value:
            odd.add(key)
        elif len(records) == 1:
            del wanted[key]
        else:
            del records[0]
    return odd
