"""Records that a lane reads from the topic itself, without Spark.

Spark takes some hundred milliseconds to plan, exchange and start a query, whatever it brings; a few thousand records
are read and decoded in a tenth of that. Each lane reads the keys of all of them, and decodes those that are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
from confluent_kafka import Message

from schemas.errors import BackfillError
from schemas.formats.protocol import UpstreamFormat
from schemas.records import BARRIER_HEADER
from schemas.table import TableSchema
from state.values.aligned import padded
from state.values.plan import BatchPlan
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.runtime.timing import Stopwatch
from streaming.source.raw.decoding import decoder_of
from streaming.source.raw.record_vnodes import vnodes_of
from streaming.source.raw.records import RawRecord, Records
from streaming.source.routes import Routes

_WAIT_S = 5.0
"""The time, in seconds, to wait for existing records. Spark waits longer, and its error says what is wrong."""
_MOST_BYTES = 64 << 20


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
        found = [raw_record(each, self.holds_barriers, headers, times=times) for each in self._read(ranges)]
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

    def _read(self, ranges: Mapping[int, tuple[int, int]]) -> list[Message]:
        held, found = 0, list[Message]()
        reader = _reader_of(self.kafka)
        try:
            for chunk in reader.read(self.topic, ranges):
                held += sum(map(len, chunk))
                if held > _MOST_BYTES:
                    raise UnreadError
                found += chunk
        except BackfillError as error:
            _reader_of.cache_clear()
            reader.close()
            raise UnreadError from error
        return found


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


@lru_cache(maxsize=1)
def _reader_of(kafka: KafkaSettings) -> RangeReader:
    """Kept open: a worker has one task at a time, and reads the same topic batch after batch."""
    return RangeReader(replace(kafka, wait_s=min(kafka.wait_s, _WAIT_S)), **{"fetch.wait.max.ms": 5})
