"""A sink that is not made of records: rows and changes are taken as columns, and kept in lists in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from schemas.errors import Code, Fenced, TopicError
from schemas.job import JobDefinition
from schemas.kinds.kinds import SinkConfig
from schemas.records import Barrier, Change, Op, Row
from streaming.sink.columns import OutputChanges, SnapshotRows
from streaming.sink.dead_letters import DeadLetter
from streaming.sink.output import Output, SinkPartition
from streaming.sink.protocol import (
    Ending,
    Mark,
    OpenWriter,
    Sink,
    Writer,
    foreign_records,
    is_sent,
    output_missing,
)

Entry = Change | Barrier | str


class ToLists(SinkConfig):
    kind: Literal["lists"] = "lists"


@dataclass
class Lists(Sink):
    """What was committed: changes and barriers by partition, and the newest writer of each id."""

    entries: dict[SinkPartition, list[Entry]] = field(default_factory=dict)
    letters: dict[str, list[DeadLetter]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)

    @property
    def open_writer(self) -> OpenWriter:
        return self._open

    @contextmanager
    def _open(self, writer_id: str, timeout_ms: int) -> Iterator[Writer]:
        self.newest[writer_id] = self.newest.get(writer_id, 0) + 1
        yield ListWriter(self, writer_id)

    def partitions(self, job: JobDefinition) -> list[list[Entry]]:
        return [entries for place, entries in sorted(self.entries.items()) if place.topic == job.output]

    def refuse_used(self, job: JobDefinition) -> None:
        if any(self.partitions(job)):
            raise TopicError(Code.OUTPUT_TOPIC_MISMATCH, found="records", expected="none", next_step="")

    def open(self, job: JobDefinition) -> None:
        for partition in range(job.output_partitions):
            self.entries.setdefault(SinkPartition(job.output, partition, job.barrier_topic), [])

    def tails(self, job: JobDefinition) -> list[Barrier | None] | None:
        return [_last(entries) for entries in self.partitions(job)] or None

    def begins(self, job: JobDefinition) -> list[Barrier | None]:
        barriers = map(_barriers, self.partitions(job))
        return [each[0] if each else None for each in barriers]

    def endings(self, job: JobDefinition, after: int) -> list[Ending]:
        return [
            Ending(each[-1].curr if each else None, tuple(b for b in each if b.curr > after and b.progress))
            for each in map(_barriers, self.partitions(job))
        ]


class ListWriter(Writer):
    def __init__(self, sink: Lists, writer_id: str) -> None:
        self._sink, self._id, self._number = sink, writer_id, sink.newest[writer_id]
        self._written: list[tuple[SinkPartition, Entry]] = []
        self._letters: list[tuple[str, DeadLetter]] = []

    def already_sent(
        self,
        before: Mapping[SinkPartition, int | None],
        epoch: int,
        known_ends: Mapping[SinkPartition, Mark],
    ) -> bool:
        tails: dict[SinkPartition, int | None] = {}
        for place, expected in before.items():
            if place not in self._sink.entries:
                raise output_missing(place[0], "no such lists")
            last = _last(self._sink.entries[place])
            if last is None and expected is not None:
                raise output_missing(place[0], "an empty list")
            tails[place] = None if last is None else last.curr
        return is_sent(tails, before, epoch)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield
        if self._sink.newest[self._id] != self._number:
            raise Fenced(Code.FENCED, found="a newer writer", expected="none", next_step="")
        for place, entry in self._written:
            self._sink.entries[place].append(entry)
        for topic, letter in self._letters:
            self._sink.letters.setdefault(topic, []).append(letter)

    def rows(self, rows: SnapshotRows) -> None:
        places = map(rows.output.partition, rows.partitions.tolist())
        columns = (column.to_pylist() for column in rows.columns)
        self._written += [
            (place, Change(Op.INSERT, None, row))
            for place, row in zip(places, zip(*columns, strict=True), strict=True)
        ]

    def changes(self, run: OutputChanges) -> None:
        befores, afters = (
            zip(*(column.to_pylist() for column in half), strict=True) for half in (run.before, run.after)
        )
        for op, partition, before, after in zip(run.ops, run.partitions, befores, afters, strict=True):
            change = _change(Op(int(op)), before, after)
            self._written.append((run.output.partition(int(partition)), change))

    def barrier(self, output: Output, partition: int, barrier: Barrier) -> None:
        self._written.append((output.partition(partition), barrier))

    def letter(self, output: Output, letter: DeadLetter) -> None:
        self._letters.append((output.definition.dead_letters, letter))


def _change(op: Op, before: Row, after: Row) -> Change:
    return Change(op, None if op is Op.INSERT else before, None if op is Op.DELETE else after)


def _barriers(entries: list[Entry]) -> list[Barrier]:
    return [entry for entry in entries if isinstance(entry, Barrier)]


def _last(entries: list[Entry]) -> Barrier | None:
    if entries and not isinstance(entries[-1], Barrier):
        raise foreign_records("lists", "something behind the last barrier")
    barriers = _barriers(entries)
    return barriers[-1] if barriers else None
