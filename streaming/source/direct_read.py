"""Reads of the topic without Spark: by lanes themselves, for quiet intervals, and for the order of databases' logs.

Spark takes some hundred milliseconds to plan, exchange and start a query, whatever it brings; a few thousand records
are read and decoded in a tenth of that. Each lane reads the keys of all of them, and decodes those that are its own.

The names of the fields in the newest rows are read apart from the batches, a few records every few seconds. So no batch
pays for it: lanes take columns apart, and what a record lacks is null there. Where records come faster than they are
looked at, the newest of them are; those behind them are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from confluent_kafka import Message

from schemas.codec.log_positions import positions_in
from schemas.errors import BackfillError
from schemas.formats.protocol import KeyEncoder, UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.formats.row_names import LOST_AFTER, FieldHistory, FieldsSeen, row_names
from schemas.records import BARRIER_HEADER, Op, RecordId
from schemas.table import TableSchema
from state.columns import OFFSET, OP, PARTITION
from state.values.aligned import padded
from state.values.plan import BatchPlan
from streaming.core.planning import markers_of
from streaming.core.redelivery import Logged
from streaming.kafka.barriers import is_marked
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.kafka.topics import Watermarks
from streaming.runtime.timing import Stopwatch
from streaming.source.decoded import AFTER, BEFORE, POSITION, RecordDecoder, decoder_of
from streaming.source.records import RawRecord, Records, Routes, vnodes_of

_WAIT_S = 5.0
"""The time, in seconds, to wait for existing records. Spark waits longer, and its error says what is wrong."""
_MOST_BYTES = 64 << 20
_MOST_OFFSETS = 4
"""The maximum mean number of offsets in a partition: a barrier, the marker of its transaction, and the same once more.
With more there are records among them, most likely, and looking is in vain."""


class UnreadError(Exception):
    """The records are too many bytes together, or did not come: Spark has to read them. Nothing was done with them."""


@dataclass(frozen=True, slots=True)
class DirectReader:
    """Reads a topic of one table; a value that is sent to the lanes.

    A topic that holds no barriers is not looked through for marks of them, as in `UpstreamSource`.
    """

    kafka: KafkaSettings
    topic: str
    table: TableSchema
    holds_barriers: bool

    def decoded(
        self,
        ranges: Mapping[int, tuple[int, int]],
        format_: UpstreamFormat,
        routes: Routes | None = None,
        lane: int = 0,
        watch: Stopwatch | None = None,
        headers: tuple[str, ...] = (),
        *,
        times: bool = False,
    ) -> pa.RecordBatch:
        """The committed records of each partition's offsets [first, end), decoded; with `routes` those of a lane.

        `headers` are the names of those that jobs pass on; with `times` as asked. For one thread of a process.
        Raises: UnreadError.
        """
        watch = watch or Stopwatch()
        found = [
            raw_record(each, self.holds_barriers, headers, times=times)
            for each in _read(self.kafka, self.topic, ranges)
        ]
        records = Records.of(found, headers=bool(headers), times=times)
        vnodes = vnodes_of(format_, self.table).of(records)
        numbers = vnodes.numbers
        if routes is not None:
            own = pa.array(routes.placed(records, vnodes).among(lane))
            records, numbers = records.filter(own), numbers.filter(own)
        watch.lap("read")
        rows = decoder_of(format_, self.table).decoded(records, numbers)
        watch.lap("decode")
        return rows


def raw_record(
    message: Message, holds_barriers: bool, names: tuple[str, ...] = (), *, times: bool = False
) -> RawRecord:
    """A record of a topic that `holds_barriers`, or where that header says nothing; with the headers of these `names`.

    With `times` its timestamp is the last. Without a reason its headers are not looked at: each takes a copy.
    """
    headers = (message.headers() or ()) if holds_barriers or names else ()
    is_marked = holds_barriers and any(header[0] == BARRIER_HEADER for header in headers)
    record = message.partition() or 0, message.offset() or 0, message.key(), message.value(), is_marked
    time = (message.timestamp()[1],) if times else ()
    if not names:
        return *record, *time
    own = [{"key": header[0], "value": header[1]} for header in headers if header[0] in names]
    return *record, own, *time


def ranges_of(plan: BatchPlan, begins: Sequence[int] = ()) -> dict[int, tuple[int, int]]:
    """The offsets [first, end) of a batch by partition, without those before `begins`, and without empty ones."""
    first = map(max, plan.first_offsets, padded(begins, plan.first_offsets))
    pairs = enumerate(zip(first, plan.end_offsets, strict=True))
    return {number: (start, end) for number, (start, end) in pairs if start < end}


def _read(kafka: KafkaSettings, topic: str, ranges: Mapping[int, tuple[int, int]]) -> list[Message]:
    """The committed records of some offsets. Raises: UnreadError."""
    held, found = 0, list[Message]()
    reader = _reader_of(kafka)
    try:
        for chunk in reader.read(topic, ranges):
            held += sum(map(len, chunk))
            if held > _MOST_BYTES:
                raise UnreadError
            found += chunk
    except BackfillError as error:
        _reader_of.cache_clear()
        reader.close()
        raise UnreadError from error
    return found


@lru_cache(maxsize=1)
def _reader_of(kafka: KafkaSettings) -> RangeReader:
    """Kept open: a process has one task at a time, and reads the same topic batch after batch."""
    return RangeReader(replace(kafka, wait_s=min(kafka.wait_s, _WAIT_S)), **{"fetch.wait.max.ms": 5})


@dataclass(frozen=True, slots=True)
class QuietIntervals:
    """Checks of one upstream topic. `begins` are the first offsets that are read, where they are not its first ones.

    A Spark job that finds nothing takes as long as one that finds a few changes, and an idle table would pay for one
    with every barrier. A few offsets are read in a few milliseconds instead. For one thread of a process.
    """

    kafka: KafkaSettings
    topic: str
    begins: Sequence[int] = ()

    def is_quiet(self, plan: BatchPlan) -> bool:
        """True if the batch's own records are only its barriers' markers and records that the plan skips.

        False wherever that is not certain, a broker that does not answer and lost records included: what reads the
        records for the lanes says what is wrong.
        """
        ranges, markers = ranges_of(plan, self.begins), markers_of(plan)
        if sum(end - start for start, end in ranges.values()) > _MOST_OFFSETS * len(plan.first_offsets):
            return False
        try:
            messages = _read(self.kafka, self.topic, ranges) if ranges else []
        except UnreadError:
            return False
        return all(_is_nothing(message, plan, markers) for message in messages)


def _is_nothing(message: Message, plan: BatchPlan, markers: frozenset[RecordId]) -> bool:
    """True if a lane ignores it: skipped by the plan, or the marker of a barrier of it (`streaming.lane.changes`)."""
    place = located(message)
    if place in plan.skipped:
        return True
    return is_marked(message) and message.key() is None and place in markers


@dataclass(frozen=True)
class LoggedRecords:
    """A reader of the topic of one table. `holds_barriers`: some records are barriers, which are left out."""

    kafka: KafkaSettings
    topic: str
    table: TableSchema
    holds_barriers: bool

    def read(
        self,
        ranges: Mapping[int, tuple[int, int]],
        format_: UpstreamFormat,
        skipped: Set[RecordId],
        epoch: int,
    ) -> Iterator[Logged]:
        """The committed records in these offsets [first, end), each partition's in order, without those `skipped`.

        They are read as the batch up to barrier `epoch` reads them.
        Raises: EnvironmentProblem, DataLost as `RangeReader.read`.
        """
        decoder = RecordDecoder(format_, self.table.as_read(epoch))
        encoder = DEFAULT.keys(self.table.key_columns)
        assert encoder is not None
        with RangeReader(self.kafka) as reader:
            for chunk in reader.read(self.topic, ranges):
                found = [each for each in chunk if located(each) not in skipped]
                records = Records.of([raw_record(each, self.holds_barriers) for each in found])
                batch = decoder.decoded(records, pa.nulls(len(found), pa.int32()))
                yield from logged_in(batch, self.table.primary_key, encoder)


def logged_in(batch: pa.RecordBatch, key_names: Sequence[str], encoder: KeyEncoder) -> Iterator[Logged]:
    """The judged part of decoded records (`streaming.source.decoded`), for changes only, in their order."""
    batch = batch.filter(pc.greater_equal(batch[OP], 0))
    before, after = batch[BEFORE], batch[AFTER]
    rows = pc.if_else(after.is_valid(), after, before)
    keys = encoder([pc.struct_field(rows, name) for name in key_names])
    yield from map(
        Logged,
        batch[PARTITION].to_pylist(),
        batch[OFFSET].to_pylist(),
        map(bytes, keys.to_pylist()),
        map(Op, batch[OP].to_pylist()),
        positions_in(batch[POSITION]),
    )


OF_A_LOOK = 1_000
"""Records, of all partitions."""

_log = structlog.get_logger(__name__)


class NewestRows:
    """The newest rows of one topic; for one thread. `format_` looks up schemas. `close` it at the end."""

    def __init__(self, kafka: KafkaSettings, topic: str, format_: UpstreamFormat, table: TableSchema) -> None:
        self._kafka, self._topic = kafka, topic
        self._names, self._history = row_names(format_), FieldHistory(table)
        self._next: list[int] = []
        self._reader: RangeReader | None = None
        self._logged = FieldsSeen()

    def look(self, marks: Sequence[Watermarks]) -> FieldsSeen:
        """Take the newest rows up to these ends into account, and log what has changed.

        Trouble of broker or registry is for those who read the topic to tell.
        """
        share = max(1, OF_A_LOOK // max(1, len(marks)))
        known = [*self._next, *[0] * (len(marks) - len(self._next))]
        ranges = {
            number: (max(known[number], mark.earliest, mark.stable - share), mark.stable)
            for number, mark in enumerate(marks)
        }
        if self._names is not None and any(start < end for start, end in ranges.values()):
            try:
                self._read(ranges)
            except BackfillError as error:
                _log.debug("newest_rows_not_read", upstream=self._topic, code=error.code)
        self._next = [mark.stable for mark in marks]
        found = self._history.seen()
        _log_changes(self._topic, self._logged, found)
        self._logged = found
        return found

    def _read(self, ranges: dict[int, tuple[int, int]]) -> None:
        assert self._names is not None
        if self._reader is None:
            self._reader = RangeReader(self._kafka)
        for chunk in self._reader.read(self._topic, ranges):
            for message in chunk:
                value = message.value()
                if not value or is_marked(message):
                    continue
                names = self._names(value)
                if names is not None:
                    self._history.add(names)

    def close(self) -> None:
        """Leave the broker; idempotent."""
        if self._reader is not None:
            self._reader.close()


def _log_changes(topic: str, before: FieldsSeen, now: FieldsSeen) -> None:
    for name in sorted(set(now.lost) - set(before.lost)):
        _log.warning(
            "column_lost",
            upstream=topic,
            column=name,
            found=f"none of the last {LOST_AFTER:,} rows that were looked at has it",
            next_step="see whether the upstream's table still has the column; its rows are null without it",
        )
    for name in sorted(set(now.never) - set(before.never)):
        _log.warning(
            "column_never_seen",
            upstream=topic,
            column=name,
            found=f"none of {now.rows:,} rows that were looked at has it",
            next_step="correct the column's name or its `field`; if rows may lack it, give it `fill: null`",
        )
    for name in sorted({*before.lost, *before.never} - {*now.lost, *now.never}):
        _log.info("column_is_there", upstream=topic, column=name)
    names = [name for name in now.undeclared if name not in set(before.undeclared)]
    if names or now.more > before.more:
        _log.info("fields_not_declared", upstream=topic, names=names, more=now.more)
