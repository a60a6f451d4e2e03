"""Explains suspect keys, one by one: whether there is a real difference, and of which kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from schemas.errors import InputError
from schemas.records import Change, Op
from streaming.verify.expectation import Expectation
from streaming.verify.findings import Findings, Rule, digest
from streaming.verify.history import Interval, PartitionHistory, TopicEntry
from streaming.verify.records.keys import KeySpace
from streaming.verify.records.rows import OutputView, WantedRecord, op_of

_MOST_RECORDS_NAMED = 4


class Explainer:
    """Turns what could not be crossed off into findings, at most one a key and interval."""

    def __init__(self, keys: KeySpace, view: OutputView, findings: Findings) -> None:
        self._keys, self._view, self._rows, self._findings = keys, view, view.rows, findings

    def explain(
        self,
        partition: PartitionHistory,
        interval: Interval,
        expectation: Expectation,
        suspects: Iterable[bytes | None],
    ) -> None:
        """Look again at every record of the suspect keys, with keys and changes in canonical form."""
        raw = set(suspects)
        there: defaultdict[bytes, list[TopicEntry]] = defaultdict(list)
        known: dict[bytes, bytes] = {}
        for entry in interval.changes:
            if (None if entry.key is None else self._view.primary(entry.key)) not in raw:
                continue
            key = self._canonical_key(partition, entry, interval, known)
            if key is not None:
                there[key].append(entry)
        # A key whose bytes aren't canonical hides behind another text of itself: each is asked about once.
        for key in {known.get(key, key) for key in raw if key is not None}:
            if key in there or key not in known:
                self._explain_key(partition, interval, expectation, key, there.get(key, []))

    def _canonical_key(
        self, partition: PartitionHistory, entry: TopicEntry, interval: Interval, known: dict[bytes, bytes]
    ) -> bytes | None:
        where = partition.at(entry.offset)
        try:
            if entry.key is None or entry.value is None:
                raise entry.no_change(where)
            primary = self._view.primary(entry.key)
            key = known.get(primary)
            if key is None:
                key = known[primary] = self._keys.canonical(primary, self._keys.values(primary))
        except InputError as error:
            self._findings.of_output(
                Rule.RECORD_MALFORMED, where, error.expected, error.found, interval.closed.barrier.curr
            )
            return None
        return key

    def _explain_key(
        self,
        partition: PartitionHistory,
        interval: Interval,
        expectation: Expectation,
        key: bytes,
        there: Sequence[TopicEntry],
    ) -> None:
        wanted = [record._replace(value=self._canonical(record.value)) for record in expectation.of(key)]
        found = [
            WantedRecord(self._view.canonical_key(entry.key or b"", key), self._canonical(entry.value or b""))
            for entry in there
        ]
        if wanted in (found, expectation.without_needless(key, found)):
            return
        where = partition.at(there[0].offset) if there else interval.closed.where
        try:
            values = self._keys.values(key)
        except InputError:
            return  # reported where its record was read
        vnode, say = self._keys.vnode_of(values, partition.partition), self._findings.of_output
        barrier = interval.closed.barrier.curr
        home = self._keys.partition_of(vnode)
        for entry, record in zip(there, found, strict=True):
            if self._rows.change(record.value) is None:
                at = partition.at(entry.offset)
                expected = "a Change of the output's Row"
                say(Rule.RECORD_MALFORMED, at, expected, digest(record.value), barrier, vnode)
                return
        if home != partition.partition:
            expected, there_is = f"vnode {vnode} in partition {home}", _described(found)
            there_is += f" in partition {partition.partition}"
            say(Rule.MISROUTED, where, expected, there_is, barrier, vnode)
            return
        if there and not wanted and not expectation.positions.covers(vnode, values):
            rule = Rule.BEYOND_POSITION
        else:
            rule = _kind(wanted, found)
        differing = self._differing(wanted, found) if rule is Rule.CHANGED else ""
        first = _first_difference(wanted, found)
        place = partition.at(there[first].offset) if first < len(there) else interval.closed.where
        say(rule, place, _described(wanted), _described(found) + differing, barrier, vnode)

    def _canonical(self, record: bytes) -> bytes:
        try:
            return self._rows.canonical_change(record)
        except InputError:
            return record

    def _differing(self, wanted: Sequence[WantedRecord], found: Sequence[WantedRecord]) -> str:
        names: set[str] = set()
        for one, other in zip(wanted, found, strict=True):
            here, there = self._rows.change(one.value), self._rows.change(other.value)
            names |= {"the key"} if one.key != other.key else set()
            if here is not None and there is not None and one != other:
                names |= self._differing_columns(here, there)
        return f", differing in {', '.join(sorted(names))}" if names else ""

    def _differing_columns(self, one: Change, other: Change) -> set[str]:
        names: set[str] = set()
        for here, there in ((one.before, other.before), (one.after, other.after)):
            if here is not None and there is not None:
                cells = zip(self._rows.columns, here, there, strict=True)
                names |= {column.name for column, left, right in cells if repr(left) != repr(right)}
        return names


def _kind(wanted: Sequence[WantedRecord], found: Sequence[WantedRecord]) -> Rule:
    if _is_subsequence(found, wanted):
        return Rule.LOST
    if _is_subsequence(wanted, found):
        return Rule.EXTRA
    if Counter(wanted) == Counter(found):
        return Rule.REORDERED
    if [op_of(record.value) for record in wanted] == [op_of(record.value) for record in found]:
        return Rule.CHANGED
    return Rule.DIFFERENT


def _is_subsequence(short: Sequence[WantedRecord], whole: Sequence[WantedRecord]) -> bool:
    rest = iter(whole)
    return all(record in rest for record in short)


def _first_difference(wanted: Sequence[WantedRecord], found: Sequence[WantedRecord]) -> int:
    pairs = zip(wanted, found, strict=False)
    return next(
        (index for index, (one, other) in enumerate(pairs) if one != other), min(len(wanted), len(found))
    )


def _described(records: Sequence[WantedRecord]) -> str:
    if not records:
        return "nothing"
    names = ", ".join(_name(record) for record in records[:_MOST_RECORDS_NAMED])
    return names if len(records) <= _MOST_RECORDS_NAMED else f"{names}, … ({len(records)} records)"


def _name(record: WantedRecord) -> str:
    op: Op | None = op_of(record.value)
    return f"{op.name if op is not None else 'no op'} ({digest(record.value)})"
