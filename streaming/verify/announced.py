"""Columns that an output has got: what its barriers tell of them, and in which records they stand.

In each partition a record has such a column at the earliest in the interval whose barrier tells it, and all partitions
tell it half a minute after the first one did. A record that lacks it stands for its fill, which the law compares like
any other value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from schemas.table import Column
from schemas.types import json_literal
from streaming.reading.entries import Place
from streaming.reading.records.forms import RecordForm
from streaming.reading.records.reader import in_type
from streaming.verify.findings import Findings, Rule
from streaming.verify.history import Closed, Interval, PartitionHistory

_ALL_WITHIN_MS = 30_000


class _Seen(NamedTuple):
    """The first record of a kind, and the barrier that closes its interval."""

    where: Place
    barrier: int


class AnnouncedColumns:
    """Judges one output by the columns that it has in the end. `judge` each interval of a partition, then `close`."""

    def __init__(self, columns: Sequence[Column], form: RecordForm, findings: Findings) -> None:
        self._names = [column.name for column in columns]
        self._wanted: dict[str, list[dict[str, Any]]] = {
            column.name: [
                {**column.announced, "type": str(kind), "fill": json_literal(in_type(fill, kind))}
                for kind in (column.type, *(former.type for former in column.was))
            ]
            for column, fill in zip(columns, form.fills, strict=True)
        }
        self._findings = findings
        self._announced: dict[int, set[str]] = {}
        # Which columns it began with may be known only in the end: they are announced nowhere.
        self._new = set(self._names[form.first_width :] if form.first_width else ())
        self._since_ms: dict[str, int] = {}
        self._early: dict[tuple[int, str], _Seen] = {}
        self._lacking: dict[str, _Seen] = {}

    def judge(self, partition: PartitionHistory, interval: Interval) -> None:
        """Take what its barrier tells, and look which columns its records have."""
        closed, number = interval.closed, partition.partition
        announced = self._announced.setdefault(number, set())
        self._take(closed, announced)
        widths = {entry.width: entry for entry in reversed(interval.changes) if entry.width is not None}
        for width, entry in widths.items():
            seen = _Seen(partition.at(entry.offset), closed.barrier.curr)
            for name in self._names[:width]:
                if name not in announced:
                    self._early.setdefault((number, name), seen)
            for name in self._names[width:]:
                self._lacking.setdefault(name, seen)

    def _take(self, closed: Closed, announced: set[str]) -> None:
        barrier = closed.barrier
        given = {name: json.loads(text) for name, text in barrier.columns}
        lacking = sorted(announced - given.keys()) if barrier.full else []
        for name in (*given, *lacking):
            wanted, found = self._wanted.get(name), given.get(name)
            if found is None or found not in (wanted or ()):
                self._differs(closed, name, wanted, found)
        announced.update(given)
        self._new.update(given)
        for name, since_ms in self._since_ms.items():
            if name not in announced and barrier.injected_at_ms >= since_ms + _ALL_WITHIN_MS:
                expected = f"column {name}, which other partitions have had for half a minute"
                self._add(_Seen(closed.where, barrier.curr), expected, "a barrier without it")
                announced.add(name)
        for name in given:
            self._since_ms.setdefault(name, barrier.injected_at_ms)

    def _differs(self, closed: Closed, name: str, wanted: object, found: object) -> None:
        expected = (
            "no such column" if wanted is None else f"column {name} with the type and fill of the table"
        )
        what = (
            "a full barrier that does not tell it" if found is None else f"column {name} announced otherwise"
        )
        self._findings.of_output(Rule.COLUMN_DIFFERS, closed.where, expected, what, closed.barrier.curr)

    def close(self) -> None:
        """Once all was read it is known which columns are new."""
        for (_, name), seen in self._early.items():
            if name in self._new:
                expected = (
                    f"column {name} once a barrier of the partition has announced it, at the latest this one"
                )
                self._add(seen, expected, "a record with it before")
        for name, seen in self._lacking.items():
            if name not in self._new:
                self._add(seen, f"column {name}, which no barrier tells", "a record without it")

    def _add(self, seen: _Seen, expected: str, found: str) -> None:
        self._findings.of_output(Rule.COLUMN_UNANNOUNCED, seen.where, expected, found, seen.barrier)
