"""Sends the changes of a `ChangeGenerator`: a table as fast as the broker takes it, then live changes at a rate.

Records go through an idempotent producer, without transactions. The partition of a key is its crc32 modulo
the number of partitions, so all its changes are in one partition, in order.

A topic that an earlier run has filled is continued (`resume`). The rows themselves need not be kept (see
`streaming.events.rows`), so reading leaves 13 bytes a record: a hash of its key, its op, a checksum of its value. Then
the keys of the numbers 0, 1, 2, … are made and looked up by their hashes, and the last value of each key is made and
compared by its checksum. If all agree, the topic is what this table and seed give, and nothing illegal can follow; if
not, it is foreign and stays untouched.
"""

from __future__ import annotations

import threading
import time
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, Message, Producer
from xxhash import xxh3_64_intdigest

from schemas.errors import Code, TopicError
from schemas.records import Op
from streaming.events.encoders import EventEncoder
from streaming.events.generator import ChangeGenerator, ChangeMix, GeneratedChanges
from streaming.kafka.barriers import is_marked
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS, KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.errors import translate, translated
from streaming.kafka.native import RecordProducer

_CHUNK = 65_536
_CLIENT_ID = "changes"


@dataclass(frozen=True, slots=True)
class SentChanges:
    """Counts of the changes sent, and the instants of the first and last one (Unix milliseconds; 0: nothing yet)."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    first_at_ms: int = 0
    last_at_ms: int = 0

    @property
    def total(self) -> int:
        return self.inserts + self.updates + self.deletes

    def plus(self, changes: GeneratedChanges, now_ms: int) -> SentChanges:
        """The sum with changes that were sent at `now_ms`."""
        counts = np.bincount(changes.ops, minlength=len(Op)).tolist()
        return SentChanges(
            self.inserts + counts[Op.INSERT],
            self.updates + counts[Op.UPDATE],
            self.deletes + counts[Op.DELETE],
            self.first_at_ms or now_ms,
            now_ms,
        )


class ChangeSender:
    """An open producer for one topic. Records carry the time of `send` as their timestamp (CreateTime)."""

    def __init__(self, settings: KafkaSettings, topic: str, **over: object) -> None:
        self._settings, self._topic = settings, topic
        self._failure: KafkaError | None = None
        self._producer = Producer(
            settings.producer(
                **{
                    "client.id": _CLIENT_ID,
                    "delivery.report.only.error": True,
                    "on_delivery": self._on_failure,
                    "queue.buffering.max.messages": 500_000,
                    "queue.buffering.max.kbytes": 131_072,
                    **over,
                }
            )
        )
        # The other way calls no callback for a record that was not delivered: only a transaction fails with it.
        self._columns = RecordProducer(self._producer)
        self.sent = SentChanges()

    def _on_failure(self, error: KafkaError | None, _: Message) -> None:
        self._failure = self._failure or error

    def send(self, changes: GeneratedChanges) -> None:
        """Queue changes, waiting while the queue is full. Raises if earlier ones were not delivered."""
        if len(changes):
            with translated(self._settings, what=self._topic):
                self._columns.send(self._topic, None, changes.keys, changes.values)
            self.sent = self.sent.plus(changes, time.time_ns() // 1_000_000)
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until the broker has acknowledged everything. Raises if something was not delivered."""
        while self._producer.flush(0.1):
            self._check()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise translate(self._failure, self._settings, what=self._topic)


def produce_rows(
    sender: ChangeSender,
    generator: ChangeGenerator,
    rows: int,
    *,
    on_sent: Callable[[int], None] = lambda _: None,
) -> None:
    """Send INSERTs of `rows` new keys and wait for them. `on_sent` gets the number of rows of each chunk."""
    for start in range(0, rows, _CHUNK):
        count = min(_CHUNK, rows - start)
        sender.send(generator.inserts(count))
        on_sent(count)
    sender.flush()


@dataclass
class SteadyLoad:
    """Number of changes due, at `rate` a second since `begin_s`; after a stall at most one second's are made up for."""

    rate: float
    begin_s: float
    given: int = 0

    def due(self, now_s: float) -> int:
        """Changes due now and not given before. `now_s` must not fall."""
        due = int((now_s - self.begin_s) * self.rate) - self.given
        if due > self.rate and due > 1:
            self.begin_s, self.given, due = now_s - 1.0, 0, int(self.rate)
        self.given += due
        return due


class LiveLoad:
    """Changes at a steady rate, from a thread of its own (`start`, `stop`; or use it as a context).

    `rate` is changes per second. After a stall of more than a second the missed changes are left out: the
    rate is a load, not a debt. `sent` may be read at any time; `stop` waits for the last acknowledgement.
    """

    TICK_S = 0.05
    """Encoding takes 2 ms for a handful of changes as for a thousand: at a shorter one the load is its own noise."""

    def __init__(
        self, settings: KafkaSettings, topic: str, generator: ChangeGenerator, rate: float, shares: ChangeMix
    ) -> None:
        self._sender = ChangeSender(settings, topic, **{"linger.ms": 1})
        self._generator, self._rate, self._shares = generator, rate, shares
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-changes", daemon=True)
        self.failure: Exception | None = None

    @property
    def sent(self) -> SentChanges:
        return self._sender.sent

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """True if the thread ends by itself, by a failure, within the time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> SentChanges:
        """End the thread and return the counts, all of it acknowledged. Raises: the error that ended it."""
        self._ending.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        return self.sent

    def _run(self) -> None:
        try:
            self._send_until_stopped()
            self._sender.flush()
        except Exception as failure:  # noqa: BLE001  # `stop` raises it
            self.failure = failure

    def _send_until_stopped(self) -> None:
        load = SteadyLoad(self._rate, time.monotonic())
        while not self._ending.wait(self.TICK_S):
            self._sender.send(self._generator.mixed(load.due(time.monotonic()), self._shares))


@dataclass(slots=True)
class _TopicHistory:
    """Hashes, ops and checksums of the changes read so far; those of one key are in the order of the log."""

    keys: array[int] = field(default_factory=lambda: array("Q"))
    ops: bytearray = field(default_factory=bytearray)
    checksums: array[int] = field(default_factory=lambda: array("I"))

    def add(self, message: Message, events: EventEncoder) -> None:
        """Add a record. Raises: ValueError for one that is no test event of any table."""
        if is_marked(message):
            return
        key, value = message.key(), message.value()
        if not isinstance(key, bytes) or isinstance(value, str):
            raise ValueError("no bytes")
        content = events.read_back(value)
        if content is not None:
            self.keys.append(xxh3_64_intdigest(key))
            self.ops.append(content.op)
            self.checksums.append(zlib.crc32(content.value))


def resume(settings: KafkaSettings, topic: str, generator: ChangeGenerator) -> int:
    """Bring the generator to the end of the topic, and return the number of changes in it.

    No other producer may write changes to the topic meanwhile.

    Raises: TopicError(FOREIGN_RECORDS) when the topic holds anything but barriers and the changes of this
        generator: another table, another seed, another producer.
    """
    history = _TopicHistory()
    with RangeReader(settings) as reader:
        marks = reader.await_stable(topic, timeout_s=TRANSACTION_TIMEOUT_MS / 1000)
        ranges = {partition: (mark.earliest, mark.stable) for partition, mark in enumerate(marks)}
        for chunk in reader.read(topic, ranges):
            try:
                for message in chunk:
                    history.add(message, generator.events)
            except ValueError:
                raise _foreign(topic) from None
    if history.keys:
        _restore(topic, generator, history)
    return len(history.ops)


def _restore(topic: str, generator: ChangeGenerator, history: _TopicHistory) -> None:
    keys = np.frombuffer(history.keys, np.uint64)
    known = len(np.unique(keys))
    if known > generator.capacity:
        raise _foreign(topic)
    numbers = _numbers_of(topic, generator, keys, known)
    versions = np.bincount(numbers, minlength=known).astype(np.uint32)
    last = np.zeros(known, np.int64)
    last[numbers] = np.arange(len(numbers))  # of several changes of a key the last one stays
    ops = np.frombuffer(history.ops, np.int8)[last]
    checksums = np.frombuffer(history.checksums, np.uint32)[last]
    for start in range(0, known, _CHUNK):
        part = slice(start, min(start + _CHUNK, known))
        made = generator.encode(np.arange(part.start, part.stop), versions[part].astype(np.int64), ops[part])
        if [zlib.crc32(value or b"") for value in made.to_pylist()] != checksums[part].tolist():
            raise _foreign(topic)
    generator.restore(versions, ops != Op.DELETE)


def _numbers_of(
    topic: str, generator: ChangeGenerator, keys: npt.NDArray[np.uint64], known: int
) -> npt.NDArray[np.intp]:
    """The key number of each change. Numbers are handed out without gaps, so they are those below `known`."""
    made = np.empty(known, np.uint64)
    for start in range(0, known, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, known), dtype=np.int64)
        made[numbers] = [xxh3_64_intdigest(key) for key in generator.encode_keys(numbers).to_pylist()]
    order = np.argsort(made)
    numbers_of: npt.NDArray[np.intp] = order[np.searchsorted(made, keys, sorter=order).clip(max=known - 1)]
    if not np.array_equal(made[numbers_of], keys):
        raise _foreign(topic)
    return numbers_of


def _foreign(topic: str) -> TopicError:
    return TopicError(
        Code.FOREIGN_RECORDS,
        where=topic,
        found="records that this table and seed do not give",
        expected="an empty topic, or one that the same generator has filled",
        next_step="name another topic, or the table and --seed that filled this one",
    )
