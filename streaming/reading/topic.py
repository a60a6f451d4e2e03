"""A topic read as it grows: changes and barriers, in order in each partition, wherever the barriers stand.

TopicReader     what has come since the last look
Complete        of that, what lies before barriers that all partitions have, up to one of them: the topic at a cut
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from confluent_kafka import Message

from schemas.epoch import NO_EPOCH
from schemas.errors import Code, TopicError
from schemas.records import BARRIER_HEADER, Barrier
from streaming.kafka.barriers import FoundBeside, beside_barrier_in
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.reading.records import Record, RecordDecoder


class TopicReader:
    """Reads the data topic and, if its barriers stand beside it, the topic that has them. For one thread."""

    def __init__(
        self,
        reader: RangeReader,
        topic: str,
        barriers: str | None,
        decoder: RecordDecoder,
        begins: Sequence[int] = (),
    ) -> None:
        """`reader` stays the caller's to close. Topics are read from the start; changes before `begins` are skipped."""
        self._begins = dict(enumerate(begins))
        self._reader, self._topic, self._barriers, self._decoder = reader, topic, barriers, decoder
        self._next: dict[tuple[str, int], int] = {}
        self._ahead: defaultdict[int, deque[FoundBeside]] = defaultdict(deque)
        self._last: dict[int, int] = {}

    def new(self) -> Iterator[Record]:
        """The records that have become visible to committed readers since the last call, each partition in order.

        Raises: InputError for a record that is none of the contract; EnvironmentProblem, TopicError(TOPIC_MISSING).
        """
        # Barriers first: the data that they close is there by then, or comes with the next call.
        for message in self._barrier_records():
            found = beside_barrier_in(message)
            if found is not None:
                self._ahead[found.partition].append(found)
        for message in self._read(self._topic):
            partition, offset = located(message)
            yield from self._closed(partition, offset)
            if offset < self._begins.get(partition, 0) and header_of(message, BARRIER_HEADER) is None:
                continue
            record = self._decoder.decode(message)
            if record is not None:
                yield self._placed(record)
        for partition in list(self._ahead):
            yield from self._closed(partition, self._next.get((self._topic, partition), 0))

    def _barrier_records(self) -> Iterator[Message]:
        """Nothing as long as the barrier topic does not exist; its first barrier creates it."""
        try:
            yield from self._read(self._barriers) if self._barriers is not None else ()
        except TopicError as error:
            if error.code is not Code.TOPIC_MISSING:
                raise

    def _read(self, topic: str) -> Iterator[Message]:
        marks = enumerate(self._reader.watermarks(topic))
        ranges = {
            number: (self._next.get((topic, number), mark.earliest), mark.stable) for number, mark in marks
        }
        for chunk in self._reader.read(topic, ranges):
            yield from chunk
        self._next |= {(topic, number): end for number, (_, end) in ranges.items()}

    def _closed(self, partition: int, offset: int) -> Iterator[Record]:
        """The barriers of a partition whose data lies before an offset."""
        ahead = self._ahead[partition]
        while ahead and ahead[0].end <= offset:
            found = ahead.popleft()
            self._last[partition] = found.barrier.curr
            where = f"{self._barriers}-{partition}@{found.offset}"
            yield Record(where, partition, found.barrier.curr, None, found.barrier)

    def _placed(self, record: Record) -> Record:
        """The record with the epoch of the barrier before it; the decoder knows only barriers in the data."""
        if self._barriers is None:
            return record
        return replace(record, epoch=self._last.get(record.partition, record.epoch))


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
        self._open[number].append(record)
        if not isinstance(record.body, Barrier):
            return
        self._newest[number] = record.epoch
        self._held[number].append(self._open[number])
        self._open[number] = []
        while all(self._held) and self._is_aligned():
            yield from self._next()

    def _is_aligned(self) -> bool:
        """Whether the next barriers are one; of the first ones, older ones are joined to the interval behind them."""
        newest = max(held[0][-1].epoch for held in self._held)
        for held in self._held if self.epoch == NO_EPOCH else ():
            while held and held[0][-1].epoch < newest:
                older = held.popleft()
                if not held:
                    held.append(older)
                    return False
                held[0][:0] = older
        return all(held[0][-1].epoch == newest for held in self._held) or self._is_aligned()

    def _next(self) -> Iterator[Record]:
        interval = [held.popleft() for held in self._held]
        epoch = interval[0][-1].epoch
        if self._until is None or epoch <= self._until:
            self.epoch = epoch
            for records in interval:
                yield from records
