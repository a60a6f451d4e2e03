"""The records that one output partition must hold in one interval, and what is wrong with those that it holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from schemas.records import Op
from streaming.reading.entries import RowChange, TopicEntry
from streaming.reading.records.forms import RowImages
from streaming.verify.findings import Findings, Rule, digest
from streaming.verify.fold import ChangedKey
from streaming.verify.history import Interval, PartitionHistory
from streaming.verify.positions import Positions
from streaming.verify.records.keys import KeySpace
from streaming.verify.records.rows import OutputView, differing

Records = dict[bytes, list[RowChange]]
"""By primary key: the records, in order; never an empty list."""
_MOST_RECORDS_NAMED = 4


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
        wanted = {key: self.of(key) for key in self.newly_read.keys() | self.changed.keys()}
        return {key: records for key, records in wanted.items() if records}

    def of(self, key: bytes) -> list[RowChange]:
        """The records of one primary key that must be there."""
        row, changed = self.newly_read.get(key), self.changed.get(key)
        found = [] if row is None else self.view.records(key, None, row)
        if changed is not None and self.positions.covers(changed.live.vnode, changed.live.order):
            found += [record for rows in changed.changes for record in self.view.records(key, *rows)]
        return found

    def without_needless(self, key: bytes, records: list[RowChange]) -> list[RowChange]:
        """The records of a key, without deletes of absent rows if the upstream has sent such deletes, too.

        For outputs whose deletes do not say what was there (docs/contract.md#the-law).
        """
        changed = self.changed.get(key)
        may_be = self.view.rows_before is not RowImages.FULL and not self.view.is_keyed
        left = changed.needless if changed is not None and may_be else 0
        kept: list[RowChange] = []
        is_absent = changed is None or key in self.newly_read or changed.row_before is None
        for record in records:
            is_delete = record.op is Op.DELETE
            if is_delete and is_absent and left:
                left -= 1
                continue
            kept.append(record)
            is_absent = is_delete
        return kept


def cross_off(
    wanted: Records, there: Iterable[TopicEntry], primary: Callable[[bytes], bytes]
) -> set[bytes | None]:
    """Take out of `wanted` what is there, in order. `primary` gives the primary key of a record's.

    Returns the primary keys with something else there, too; None for an invalid record.
    """
    odd: set[bytes | None] = set()
    for entry in there:
        key = None if entry.change is None else primary(entry.change.key or b"")
        records = wanted.get(key) if key is not None else None
        if key is None or records is None or records[0] != entry.change:
            odd.add(key)
        elif len(records) == 1:
            del wanted[key]
        else:
            del records[0]
    return odd


class Explainer:
    """Turns what could not be crossed off into findings, at most one a key and interval."""

    def __init__(self, keys: KeySpace, view: OutputView, findings: Findings) -> None:
        self._keys, self._view, self._say = keys, view, findings.of_output

    def explain(
        self,
        partition: PartitionHistory,
        interval: Interval,
        expectation: Expectation,
        suspects: Iterable[bytes | None],
    ) -> None:
        """Say of each suspect key whether there is a real difference, and of which kind; and of invalid records."""
        there: defaultdict[bytes, list[tuple[TopicEntry, RowChange]]] = defaultdict(list)
        for entry in interval.changes:
            if entry.change is not None:
                there[self._view.primary(entry.change.key or b"")].append((entry, entry.change))
                continue
            where = partition.at(entry.offset)
            error, barrier = entry.no_change(where), interval.closed.barrier.curr
            self._say(Rule.RECORD_MALFORMED, where, error.expected, error.found, barrier)
        for key in suspects:
            if key is not None:
                self._explain_key(partition, interval, expectation, key, there.get(key, []))

    def _explain_key(
        self,
        partition: PartitionHistory,
        interval: Interval,
        expectation: Expectation,
        key: bytes,
        there: Sequence[tuple[TopicEntry, RowChange]],
    ) -> None:
        wanted, found = expectation.of(key), [change for _, change in there]
        if wanted in (found, expectation.without_needless(key, found)):
            return
        where = partition.at(there[0][0].offset) if there else interval.closed.where
        values, barrier = self._keys.values(key), interval.closed.barrier.curr
        vnode = self._keys.vnode_of(values, partition.partition)
        home = self._keys.partition_of(vnode)
        if home != partition.partition:
            expected, there_is = f"vnode {vnode} in partition {home}", _described(found)
            there_is += f" in partition {partition.partition}"
            self._say(Rule.MISROUTED, where, expected, there_is, barrier, vnode)
            return
        if there and not wanted and not expectation.positions.covers(vnode, values):
            rule = Rule.BEYOND_POSITION
        else:
            rule = _kind(wanted, found)
        names = self._differing(wanted, found) if rule is Rule.CHANGED else ""
        first = _first_difference(wanted, found)
        place = partition.at(there[first][0].offset) if first < len(there) else interval.closed.where
        self._say(rule, place, _described(wanted), _described(found) + names, barrier, vnode)

    def _differing(self, wanted: Sequence[RowChange], found: Sequence[RowChange]) -> str:
        names: set[str] = set()
        for one, other in zip(wanted, found, strict=True):
            names |= {"the key"} if one.key != other.key else set()
            for here, there in ((one.before, other.before), (one.after, other.after)):
                if here is not None and there is not None:
                    names |= set(differing(self._view.rows, here, there))
        return f", differing in {', '.join(sorted(names))}" if names else ""


def _kind(wanted: Sequence[RowChange], found: Sequence[RowChange]) -> Rule:
    if _is_subsequence(found, wanted):
        return Rule.LOST
    if _is_subsequence(wanted, found):
        return Rule.EXTRA
    if Counter(wanted) == Counter(found):
        return Rule.REORDERED
    if [record.op for record in wanted] == [record.op for record in found]:
        return Rule.CHANGED
    return Rule.DIFFERENT


def _is_subsequence(short: Sequence[RowChange], whole: Sequence[RowChange]) -> bool:
    rest = iter(whole)
    return all(record in rest for record in short)


def _first_difference(wanted: Sequence[RowChange], found: Sequence[RowChange]) -> int:
    pairs = zip(wanted, found, strict=False)
    return next(
        (index for index, (one, other) in enumerate(pairs) if one != other), min(len(wanted), len(found))
    )


def _described(records: Sequence[RowChange]) -> str:
    if not records:
        return "nothing"
    names = ", ".join(_name(record) for record in records[:_MOST_RECORDS_NAMED])
    return names if len(records) <= _MOST_RECORDS_NAMED else f"{names}, … ({len(records)} records)"


def _name(record: RowChange) -> str:
    return f"{record.op.name} ({digest((record.before or b'') + (record.after or b''))})"
