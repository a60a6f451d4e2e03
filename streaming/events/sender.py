"""Sends the changes of a `ChangeGenerator`: a table as fast as the broker takes it, then live changes at a rate.

Records go through an idempotent producer, without transactions. The partition of a key is its crc32 modulo
the number of partitions, so all its changes are in one partition, in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from confluent_kafka import KafkaError, Message, Producer

from schemas.records import Op
from streaming.events.generator import ChangeGenerator, ChangeMix, GeneratedChanges
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.column_batches import ColumnBatches
from streaming.kafka.errors import translate, translated

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
        # The native way calls no callback for a record that was not delivered: only a transaction fails with it.
        self._columns = ColumnBatches(self._producer)
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
