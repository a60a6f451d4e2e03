"""A topic read as it grows: changes and barriers, in order in each partition, wherever the barriers stand.

GrowingTopic    what has come since the last time
Complete        of that, what lies before barriers that all partitions have, up to one of them: the topic at a cut
TableFold       the table that changes add up to
Tally           ... with what barriers say about the backfill
"""

from __future__ import annotations

import base64
import datetime as dt
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Self, TypeAlias

from schemas.epoch import NO_EPOCH
from schemas.errors import Code, InputError, TopicError
from schemas.position import Key
from schemas.records import Barrier, Change, Op, Row
from schemas.table import Column
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import Watermarks, admin, watermarks
from streaming.reading.barriers import MergedSource, read_barrier
from streaming.reading.entries import Place, Source, TopicEntry
from streaming.reading.records.forms import RecordForm, RowImages
from streaming.reading.records.reader import reader_of
from streaming.reading.sources import Ends, OpenTopic, merged


@dataclass(frozen=True, slots=True)
class Record:
    """A change with its key, or a barrier (`key` None), at its place in a partition.

    `epoch` is the barrier's own, and for a change that of the barrier before it in its partition (0: none
    yet): the interval that holds the change began there, and where it ends is not known yet. Of a row without identity
    the key is one value, the record's key as it came.
    """

    where: str
    partition: int
    epoch: int
    key: Key | None
    body: Change | Barrier


Grown: TypeAlias = Callable[[Sequence[tuple[str, str]]], tuple[Sequence[Column], RecordForm]]
"""Gives columns and form of an output that has got these columns, as `Barrier.columns` has them."""


class RecordStream:
    """Reads the entries of one topic, those of each partition in order.

    `columns` are those of the topic's rows: the table's for an upstream, the job's for an output.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        form: RecordForm,
        begins: Sequence[int] = (),
        grown: Grown | None = None,
    ) -> None:
        """Changes before the offsets `begins` are left out. `grown`: of an output that may get columns."""
        self._key_columns, self._grown = key_columns, grown
        self._take(columns, form)
        self._has_identity = form.rows_before is not RowImages.NO_IDENTITY
        self._epochs: dict[int, int] = {}
        self._begins = dict(enumerate(begins))

    def _take(self, columns: Sequence[Column], form: RecordForm) -> None:
        self.columns, self._form = tuple(columns), form
        self._reader = reader_of(form, columns, self._key_columns)

    @property
    def on_barrier(self) -> Callable[[Barrier], None] | None:
        """A callback for each barrier, before the records that it closes; None where barriers change nothing."""
        return None if self._grown is None else self._learn

    def _learn(self, barrier: Barrier) -> None:
        known = {column.name for column in self.columns}
        if self._grown is not None and any(name not in known for name, _ in barrier.columns):
            self._take(*self._grown(barrier.columns))

    def whole(self, row: Row) -> Row:
        """A row with all columns that are known by now; one that was read before may lack some."""
        return row + self._form.fills[len(row) :]

    def read(self, place: Place, entry: TopicEntry) -> Record | None:
        """None for an entry that says nothing of the table. Raises: InputError for an invalid one."""
        where, partition = str(place), place.partition
        if entry.closes is not None or entry.barrier is not None:
            barrier = entry.closes or read_barrier(entry.barrier, entry.value, where=where)
            self._epochs[partition] = barrier.curr
            return Record(where, partition, barrier.curr, None, barrier)
        if entry.offset < self._begins.get(partition, 0):
            return None
        key, value = entry.key, entry.value
        if value is None and not self._form.may_be_null:
            raise _invalid(Code.TOMBSTONE_UNSUPPORTED, where, "a record without a value")
        if key is None and self._has_identity and not self._form.may_be_null:
            raise _invalid(Code.KEY_MISMATCH, where, "a record without a key")
        read = self._reader.record(key, value, where=where)
        if read.change is None:
            return None
        row_key: Key = (key,)
        if self._has_identity:
            row_key = self._reader.key(key, where=where) if read.key is None else read.key
        return Record(where, partition, self._epochs.get(partition, NO_EPOCH), row_key, read.change)


def _invalid(code: Code, where: str, found: str) -> InputError:
    return InputError(code, where=where, found=found, expected="a change with key and value, or a barrier")


class GrowingTopic:
    """A data topic with, if it has one, the topic of its barriers; a context manager. For one thread."""

    def __init__(
        self, settings: KafkaSettings, topic: str, barriers: str | None, stream: RecordStream
    ) -> None:
        self._settings, self._client, self._ends = settings, admin(settings), Ends(settings, 0)
        self._topic, self._barriers, self._stream = topic, barriers, stream
        self._data: OpenTopic | None = None
        self._closing: OpenTopic | None = None
        self._sources: Sequence[Source] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for topic in (self._data, self._closing):
            if topic is not None:
                topic.close()

    @property
    def partitions(self) -> int:
        """The count of partitions of the data. Raises: EnvironmentProblem, TopicError(TOPIC_MISSING)."""
        return len(watermarks(self._settings, self._topic, client=self._client))

    def new(self) -> Iterator[Record]:
        """The records that have become visible to committed readers since the last call, each partition in order.

        Raises: InputError for an invalid record; EnvironmentProblem, TopicError(TOPIC_MISSING).
        """
        # Barriers first: the data that they close is there by then, or comes with the next call.
        closing = self._barrier_marks()
        data = watermarks(self._settings, self._topic, client=self._client)
        self._move(closing, data)
        for number, source in enumerate(self._sources):
            for entry in source.entries():
                name = self._topic if entry.closes is None or self._barriers is None else self._barriers
                record = self._stream.read(Place(name, number, entry.offset), entry)
                if record is not None:
                    yield record

    def _barrier_marks(self) -> Sequence[Watermarks] | None:
        """None as long as the barrier topic does not exist; its first barrier creates it."""
        if self._barriers is None:
            return None
        try:
            return watermarks(self._settings, self._barriers, client=self._client)
        except TopicError as error:
            if error.code is not Code.TOPIC_MISSING:
                raise
            return None

    def _move(self, closing: Sequence[Watermarks] | None, data: Sequence[Watermarks]) -> None:
        """Open what is there now, and move the ends of what was open."""
        if self._data is None:
            self._data = OpenTopic(self._settings, self._topic, data, self._ends)
            self._sources = self._data.sources
        for source, mark in zip(self._data.sources, data, strict=False):
            source.move_to(mark.stable)
        if closing is not None and self._barriers is not None:
            if self._closing is None:
                self._closing = OpenTopic(self._settings, self._barriers, closing, self._ends)
                announced = self._stream.on_barrier
                self._sources = merged(
                    self._data, self._closing, self._barriers, waits=True, on_barrier=announced
                )
            for source, mark in zip(self._closing.sources, closing, strict=False):
                source.move_to(mark.stable)
        for each in self._sources:
            if isinstance(each, MergedSource):
                each.follow()


class Complete:
    """Holds records back until the barrier that closes them is there in all partitions.

    With `until` what lies behind that barrier is never given. `epoch` is the last barrier that was given, 0 if none.
    Partitions whose oldest barriers were deleted may begin with different ones: the first interval is the one up to the
    first barrier that all of them have.
    """

    def __init__(self, partitions: int, until: int | None = None) -> None:
        self.epoch = NO_EPOCH
        self._until = until
        self._held: list[deque[list[Record]]] = [deque() for _ in range(partitions)]
        self._open: list[list[Record]] = [[] for _ in range(partitions)]
        self._newest = [NO_EPOCH] * partitions

    def add(self, record: Record) -> Iterator[Record]:
        """Take the next record of a partition; gives what is complete now, interval by interval."""
        number = record.partition
        if isinstance(record.body, Barrier) and record.epoch == self._newest[number]:
            return  # the same once more, which is harmless
        if isinstance(record.body, Barrier) and record.body.partitions > len(self._held):
            raise TopicError(
                Code.PARTITIONS_CHANGED,
                where=record.where,
                found=f"a barrier for {record.body.partitions} partitions",
                partitions=len(self._held),
                before="when it began to be read",
                next_step="start again: it is read with the partitions that were added",
            )
        self._open[number].append(record)
        if not isinstance(record.body, Barrier):
            return
        self._newest[number] = record.epoch
        self._held[number].append(self._open[number])
        self._open[number] = []
        while all(self._due) and self._is_aligned():
            yield from self._next()

    @property
    def _due(self) -> Sequence[deque[list[Record]]]:
        """The partitions that the next barrier is in: one that was added has it from the barrier on that says so."""
        first = self._held[0][0][-1].body if self._held[0] else None
        return self._held[: first.partitions] if isinstance(first, Barrier) else self._held

    def _is_aligned(self) -> bool:
        """True if the next barriers are one; of the first ones, older ones are joined to the interval after them."""
        newest = max(held[0][-1].epoch for held in self._due)
        for held in self._due if self.epoch == NO_EPOCH else ():
            while held and held[0][-1].epoch < newest:
                older = held.popleft()
                if not held:
                    held.append(older)
                    return False
                held[0][:0] = older
        return all(held[0][-1].epoch == newest for held in self._due) or self._is_aligned()

    def _next(self) -> Iterator[Record]:
        interval = [held.popleft() for held in self._due]
        epoch = interval[0][-1].epoch
        if self._until is None or epoch <= self._until:
            self.epoch = epoch
            for records in interval:
                yield from records


@dataclass(slots=True)
class Tally:
    """Records counted by kind, how far each partition got, and which vnodes have finished."""

    counts: Counter[str] = field(default_factory=Counter)
    epochs: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)

    def add(self, record: Record) -> None:
        """Count a record; those of a partition come in order."""
        if isinstance(record.body, Barrier):
            self.counts["barriers"] += 1
            self.epochs[record.partition] = record.epoch
            self.finished.update(item.vnode for item in record.body.progress if item.finished)
        else:
            self.counts[f"{record.body.op.name.lower()}s"] += 1


class TableFold:
    """The rows of the table after the changes so far.

    With rows before (`FULL`) a change that does not fit them is an error; else there is nothing to compare it with.
    """

    def __init__(
        self,
        rows_before: RowImages = RowImages.FULL,
        begins: Iterable[tuple[Key, Row]] = (),
        whole: Callable[[Row], Row] = lambda row: row,
    ) -> None:
        """`begins` are the rows that were there before the first change; `whole` as `RecordStream.whole`."""
        self._whole = whole
        self.rows: dict[Key, Row] = dict(begins)
        self._rows_before = rows_before

    def apply(self, key: Key, change: Change, where: str) -> None:
        """Raises: InputError INSERT_EXISTING_KEY, DELETE_MISSING_KEY (of UPDATE too), OLD_ROW_MISMATCH."""
        if self._rows_before is RowImages.FULL:
            self._check(self.rows.get(key), change, where)
        if change.after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = change.after

    def _check(self, present: Row | None, change: Change, where: str) -> None:
        if change.op is Op.INSERT and present is not None:
            raise InputError(Code.INSERT_EXISTING_KEY, where=where, found="an INSERT of a key that is there")
        if change.op is not Op.INSERT and present is None:
            found = f"{change.op.name} of a key that is not there"
            raise InputError(Code.DELETE_MISSING_KEY, where=where, found=found)
        rows = (None if row is None else self._whole(row) for row in (change.before, present))
        if not _same(*rows):
            raise InputError(
                Code.OLD_ROW_MISMATCH, where=where, found="another row in `before` than the one there"
            )


def _same(one: Row | None, other: Row | None) -> bool:
    """Equality of rows, with NaN equal to itself."""
    if one is None or other is None:
        return one is other
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


def plain(value: object) -> object:
    """A value as JSON can say it: numbers and booleans as such, the rest as text, bytes in base64."""
    match value:
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case dt.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value
