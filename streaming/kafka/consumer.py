"""Readers of ranges of offsets, committed records only, and searches for the last record of a kind in a partition.

Offsets have holes: transaction markers, aborted records. So the end of a range is found only by a record at or beyond
it, or by the end of the partition, never by counting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.errors import Code, InputError, TopicError
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.errors import OUT_OF_RANGE, translate, translated
from streaming.kafka.topics import Watermarks, admin, watermarks

_POLL_S = 0.1
_CHUNK_RECORDS = 10_000
_FIRST_WINDOW, _WINDOW_GROWTH = 32, 16

Wanted = Callable[[Message], bool]


def stable_pauses_s() -> Iterator[float]:
    """Pauses between requests for a last stable offset, without end.

    Most transactions end within milliseconds; later the broker is polled twice a second.
    """
    pause_s = 0.01
    while True:
        yield pause_s
        pause_s = min(pause_s * 1.5, 0.5)


def any_record(_: Message) -> bool:
    """Every record is wanted."""
    return True


def location(message: Message) -> str:
    """`topic-partition@offset`, the form in which errors name a record."""
    return f"{message.topic()}-{message.partition()}@{message.offset()}"


class LastRecord(NamedTuple):
    """The last wanted record of a partition, and the offset down to which it was searched for."""

    message: Message | None
    since: int


class RangeReader:
    """A consumer that reads given ranges. For one thread; close it, or use it as a context."""

    def __init__(self, settings: KafkaSettings, **over: object) -> None:
        self._settings = settings
        self._consumer = Consumer(settings.consumer(**over))
        self._known_topics = set[str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _admin(self) -> AdminClient:
        return admin(self._settings)

    def close(self) -> None:
        """Close the consumer; idempotent."""
        self._consumer.close()

    def watermarks(self, topic: str) -> tuple[Watermarks, ...]:
        """The watermarks of each partition now, in partition order. Raises: TopicError(TOPIC_MISSING)."""
        return watermarks(self._settings, topic, client=self._admin)

    def await_stable(
        self, topic: str, *, timeout_s: float, partitions: Collection[int] | None = None
    ) -> tuple[Watermarks, ...]:
        """Wait until committed readers can see everything that is in the topic at the time of the call.

        With `partitions`, in those. Raises: TopicError(BARRIER_STALLED) if a transaction stays open for `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        now = self.watermarks(topic)
        wanted = [marks.high for marks in now]
        pauses_s = stable_pauses_s()
        while True:
            held = [
                number
                for number, (marks, high) in enumerate(zip(now, wanted, strict=False))
                if marks.stable < high and (partitions is None or number in partitions)
            ]
            if not held:
                return now
            if time.monotonic() >= deadline:
                raise TopicError(
                    Code.BARRIER_STALLED,
                    where=f"{topic}-{held[0]}@{now[held[0]].stable}",
                    found=f"a transaction that has stayed open for more than {timeout_s:g} s",
                )
            self._admin.poll(next(pauses_s))
            now = self.watermarks(topic)

    def first_since(self, topic: str, time_ms: int) -> dict[int, int]:
        """By partition, the first offset whose record is from this Unix time (ms) or later; none if all are older.

        Raises: EnvironmentProblem, TopicError(TOPIC_MISSING).
        """
        wanted = [
            TopicPartition(topic, partition, max(0, time_ms))
            for partition in range(len(self.watermarks(topic)))
        ]
        with translated(self._settings, what=topic):
            found = self._consumer.offsets_for_times(wanted, timeout=self._settings.wait_s)
        return {each.partition: each.offset for each in found if each.error is None and each.offset >= 0}

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[list[Message]]:
        """The committed records with start <= offset < end of each partition, in chunks of one or more.

        Partitions are interleaved; within one the order is the log's. Ends once every range is read, so a range must
        not end behind the last stable offset.

        Raises: EnvironmentProblem: BROKER_UNREACHABLE when nothing comes for `wait_s`; InputError(DATA_LOST)
            when retention has removed the start, or the partition ends before a range does.
        """
        self._learn_leaders(topic)
        left = {partition: end for partition, (start, end) in ranges.items() if start < end}
        self._consumer.assign([TopicPartition(topic, p, ranges[p][0]) for p in left])
        try:
            yield from self._read_assigned(topic, left)
        finally:
            # Also if the caller stops early: assigned partitions are fetched further, and the next read would wait for
            # the answer to that, half a second where no record comes.
            with suppress(RuntimeError):  # closed meanwhile
                self._consumer.unassign()

    def _read_assigned(self, topic: str, left: dict[int, int]) -> Iterator[list[Message]]:
        last_progress = time.monotonic()
        while left:
            chunk = self._poll(topic, left)
            if chunk:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > self._settings.wait_s:
                raise translate(KafkaError(KafkaError._TIMED_OUT), self._settings, what=topic)
            records, done = _split(chunk, left)
            if records:
                yield records
            self._drop_done(topic, done, left)

    def _learn_leaders(self, topic: str) -> None:
        """Before the first read: an assignment before the connection is up finds leaders only a second later."""
        if topic not in self._known_topics:
            with translated(self._settings, what=topic):
                self._consumer.list_topics(topic, timeout=self._settings.wait_s)
            self._known_topics.add(topic)

    def _poll(self, topic: str, ends: Mapping[int, int]) -> list[Message]:
        """Records and end-of-partition events; any other event is an error."""
        with translated(self._settings, what=topic):
            first = self._consumer.poll(_POLL_S)  # `consume` alone would sit out its timeout for a full chunk
            chunk = [] if first is None else [first, *self._consumer.consume(_CHUNK_RECORDS, timeout=0)]
        events = [message for message in chunk if message.error() is not None]
        if not events:
            return chunk
        for message in events:
            error = message.error()
            if error is not None and not _is_end(error) and not error.retriable():
                self._refuse_lost(message, error, topic, ends)
                raise translate(error, self._settings, what=location(message) if message.topic() else topic)
        return [message for message in chunk if (error := message.error()) is None or _is_end(error)]

    def _refuse_lost(self, event: Message, error: KafkaError, topic: str, ends: Mapping[int, int]) -> None:
        """Raises: InputError(DATA_LOST) when the error is that of an offset which the partition indeed lacks.

        librdkafka tells the same of a log that it takes for truncated, mostly with no offset.
        """
        if error.code() not in OUT_OF_RANGE:
            return
        partition, offset = located(event)
        marks = self.watermarks(topic)[partition]
        if 0 <= offset < marks.earliest or ends.get(partition, 0) > marks.high:
            raise InputError(
                Code.DATA_LOST,
                where=location(event),
                found=f"a partition with the offsets {marks.earliest} to {marks.high - 1} alone ({error.str()})",
                start="the beginning of the topic",
            )

    def _drop_done(self, topic: str, done: set[int], left: dict[int, int]) -> None:
        for partition in done:
            del left[partition]
        if done and left:
            self._consumer.incremental_unassign([TopicPartition(topic, partition) for partition in done])

    def first(self, topic: str, most: int, begins: Sequence[int] = ()) -> Iterator[Message]:
        """The first `most` committed records, as many of each partition, from the offsets `begins` on.

        Raises: as `watermarks` and `read`.
        """
        marks = self.watermarks(topic)
        share = max(1, most // len(marks))
        starts = [max(mark.earliest, begins[number] if begins else 0) for number, mark in enumerate(marks)]
        ranges = {
            number: (start, min(start + share, marks[number].stable)) for number, start in enumerate(starts)
        }
        for chunk in self.read(topic, ranges):
            yield from chunk

    def last(self, topic: str, partition: int, wanted: Wanted = any_record) -> Message | None:
        """The last committed record of the partition that is wanted, or None if there is none at all."""
        return self.look_back(topic, [partition], wanted)[partition].message

    def look_back(
        self,
        topic: str,
        partitions: Collection[int],
        wanted: Wanted = any_record,
        *,
        most: float = math.inf,
        most_bytes: float = math.inf,
    ) -> dict[int, LastRecord]:
        """The last committed record of each partition that is wanted.

        Searches from the ends in growing windows, in all partitions at once, so records near the ends are found soon,
        and each record is read once however far back they are. Ends after `most` records of a partition, or before
        windows that would, by the size of those before them, have more than `most_bytes` in all.
        """
        marks = self.watermarks(topic)
        ends = {number: marks[number].stable for number in partitions}
        earliest = {number: int(max(marks[number].earliest, ends[number] - most)) for number in partitions}
        found, window, size = dict[int, Message](), _FIRST_WINDOW, 0
        while size * _WINDOW_GROWTH <= most_bytes:
            left = [
                number for number in partitions if number not in found and ends[number] > earliest[number]
            ]
            if not left:
                break
            ranges = {number: (max(earliest[number], ends[number] - window), ends[number]) for number in left}
            for chunk in self.read(topic, ranges):
                size += sum(map(len, chunk))
                found |= _last_of_each(chunk, wanted)
            ends |= {number: start for number, (start, _) in ranges.items()}
            window *= _WINDOW_GROWTH
        return {number: LastRecord(found.get(number), ends[number]) for number in partitions}


def _last_of_each(chunk: Sequence[Message], wanted: Wanted) -> dict[int, Message]:
    """The last record of each partition that is wanted."""
    found: dict[int, Message] = {}
    for message in reversed(chunk):
        number, _ = located(message)
        if number not in found and wanted(message):
            found[number] = message
    return found


def located(message: Message) -> tuple[int, int]:
    """Partition and offset of a received message."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None  # only a message that was never sent lacks them
    assert offset is not None
    return partition, offset


def header_of(message: Message, name: str) -> bytes | None:
    """The value of a header, None without it. A header given twice counts by its last."""
    headers = message.headers()
    value = dict(headers).get(name) if headers else None
    return value.encode() if isinstance(value, str) else value


def _is_end(error: KafkaError) -> bool:
    return bool(error.code() == KafkaError._PARTITION_EOF)


def _split(chunk: list[Message], ends: Mapping[int, int]) -> tuple[list[Message], set[int]]:
    """The records within their partition's end, and the partitions of which nothing more can come.

    A range is done after a record at its end or beyond, and at the end of the partition (an event, no record), unless
    that lies before the end of the range: a replica that has just become the leader may for a moment show less than the
    one before.
    """
    records, done = [], set[int]()
    for message in chunk:  # without needless calls: a batch may have a hundred thousand messages
        partition: Any = message.partition()
        end = ends.get(partition)
        if end is None:  # fetched before its partition was dropped
            continue
        offset: Any = message.offset()
        is_record = message.error() is None
        if is_record and offset < end:
            records.append(message)
        if offset >= (end - 1 if is_record else end):
            done.add(partition)
    return records, done
