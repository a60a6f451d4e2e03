"""Retention that took the last batch, and a record that grows beyond what its output takes: kills, then the table."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.records import Row
from schemas.settings.config import load
from schemas.table import declare
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.runtime.failpoints import VARIABLE
from tests.kit.debezium import DebeziumUpstream
from tests.kit.folded import fold_of
from tests.kit.kafka_topics import remove_beginning
from tests.kit.process import Process
from tests.kit.real import RealUpstream, UpsertUpstream, records

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800)]
TABLE = declare(
    {
        "name": "orders",
        "columns": {"id": "bigint", "amount": "decimal(18,2)", "note": "string"},
        "primary_key": ["id"],
        "vnode_count": 16,
    }
)


def row(number: int, note: str = "short") -> Row:
    return number, Decimal(number).quantize(Decimal("0.01")), note


class Killed:
    """A service of an upstream, whose barriers it injects beside the data, and one job; started as often as needed."""

    def __init__(
        self, broker: EmbeddedBroker, folder: Path, upstream_type: type[RealUpstream], **config: Any
    ) -> None:
        unique = uuid.uuid4().hex[:8]
        self.kafka, self.output = KafkaSettings(broker.bootstrap), f"copy-{unique}"
        name = f"up-{unique}"
        self.upstream = upstream_type(TABLE, self.kafka, name, 2, f"{name}.barriers")
        self.file, self._logs = folder / "config.json", folder / "logs"
        declared = {
            "kafka": {"bootstrap": broker.bootstrap},
            "upstream": {"topic": name, **self.upstream.form},
            "barrier_topic": self.upstream.topics.barriers,
            "barrier_interval": "300ms",
            "state": "state",
            "table": TABLE.to_dict(),
            "jobs": [{"name": "copy", "output": self.output}],
            **config,
        }
        self.file.write_text(json.dumps(declared), encoding="utf-8")

    def completes(self) -> None:
        self.upstream.flush()
        process = Process.start(self.file, "--exit-when-complete", BACKFILL_LOGS=str(self._logs))
        try:
            assert process.end() == 0, process.lines[-5:]
        finally:
            process.kill()

    def falls(self, failpoint: str) -> None:
        self.upstream.flush()
        options = {"BACKFILL_LOGS": str(self._logs), VARIABLE: f"{failpoint}:kill"}
        process = Process.start(self.file, **options)
        try:
            assert process.end() == -9, process.lines[-5:]
        finally:
            process.kill()

    def loses_all(self) -> None:
        for partition in range(self.upstream.partitions):
            remove_beginning(self.kafka.bootstrap, self.upstream.name, -1, partition=partition)

    def changes(self) -> int:
        """Records of the output without its barriers, so far."""
        found = records(self.kafka, self.output)
        return sum(message.key() is not None for partition in found for message in partition)

    def rows(self) -> dict[Any, Row]:
        return fold_of(load(self.file), self.kafka, 0)[0]


def test_retention_that_took_the_last_batch(broker: EmbeddedBroker, tmp_path: Path) -> None:
    tried = Killed(broker, tmp_path, DebeziumUpstream)
    upstream = tried.upstream
    assert isinstance(upstream, DebeziumUpstream)
    for number in range(300):
        upstream.put(row(number))
    tried.completes()
    for version, point in enumerate(("progressed@2", "settled@2", "planned@3")):
        tried.loses_all()
        upstream.again(20)
        for number in range(version, 300, 7):
            upstream.put(row(number, f"v{version}"))
        tried.falls(point)  # all of it was in the first batch
        tried.loses_all()
        upstream.again(10)
        sent = tried.changes()
        tried.completes()
        assert (tried.changes(), tried.rows()) == (sent, upstream.rows)
    upstream.close()


def test_a_record_that_grows_beyond_its_limit(broker: EmbeddedBroker, tmp_path: Path) -> None:
    tried = Killed(broker, tmp_path, UpsertUpstream, on_bad_record="park")
    upstream = tried.upstream
    create_topic(tried.kafka, tried.output, 4, config={"max.message.bytes": "1100000"})
    upstream.put(row(9, "a" * 600_000))
    for number in range(100):
        upstream.put(row(number + 100))
    tried.completes()
    for version, point in enumerate(("lane-sent@1", "journaled@1", "sent@1", "replicated@1")):
        kept = upstream.rows[9,]
        upstream.put(row(9, "b" * 600_000))  # both rows are in the change
        upstream.rows[9,] = kept
        for number in range(version, 100, 5):
            upstream.put(row(number + 100, f"v{version}"))
        tried.falls(point)
        tried.completes()
        assert tried.rows() == upstream.rows
    upstream.close()
