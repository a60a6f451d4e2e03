"""Kills for an upstream of rows without identity, which come at a steady rate, many of them equal."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from schemas.table import declare
from streaming.kafka.topics import create_topic
from tests.kit.kill_scenario import KillScenario

EVENTS = declare({"name": "events", "columns": {"id": "bigint", "amount": "int"}}, has_key=False)
COLUMNS, FILTER = ["amount"], "amount >= 2"
_TICK_S = 0.05


class AppendKillScenario(KillScenario):
    """Barriers of the upstream are beside it, those of the output in it."""

    def _fill(self) -> None:
        create_topic(self.kafka, self.upstream, 4)
        self._chance, self._producer = random.Random(1), Producer(self.kafka.producer())
        self._append(self.rows)
        assert self._producer.flush(30) == 0
        self.config = {
            "upstream": {"topic": self.upstream, "format": "append"},
            "table": EVENTS.to_dict(),
            **self.config,
        }
        self.job = {
            "read": "topic",
            "format": "append",
            "columns": COLUMNS,
            "filter": FILTER,
            "barrier_topic": self.output,
            **self.job,
        }

    def _append(self, count: int) -> None:
        for _ in range(count):
            row = {"id": self._chance.randrange(5), "amount": self._chance.randrange(4)}
            key, partition = self._chance.choice([None, b"a", b"b"]), self._chance.randrange(4)
            self._producer.produce(self.upstream, json.dumps(row).encode(), key, partition)
            self._producer.poll(0)

    @contextmanager
    def live(self) -> Iterator[None]:
        over = threading.Event()

        def work() -> None:
            while not over.wait(_TICK_S):
                self._append(int(self.live_rate * _TICK_S))

        writer = threading.Thread(target=work, daemon=True)
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()
            assert self._producer.flush(30) == 0
