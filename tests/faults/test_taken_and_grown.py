"""Retention that took the last batch, and a record that grows beyond what its output takes: kills, then the table."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from schemas.records import Row
from schemas.table import declare
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.topics import create_topic
from tests.kit.debezium import DebeziumUpstream
from tests.kit.killed_service import KilledService
from tests.kit.real_upstream import UpsertUpstream

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


def test_retention_that_took_the_last_batch(broker: EmbeddedBroker, tmp_path: Path) -> None:
    tried = KilledService(broker, tmp_path, TABLE, DebeziumUpstream)
    upstream = tried.upstream
    assert isinstance(upstream, DebeziumUpstream)
    for number in range(300):
        upstream.put(row(number))
    tried.completes()
    for version, point in enumerate(("replicated@2", "settled@2", "planned@3")):
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
    tried = KilledService(broker, tmp_path, TABLE, UpsertUpstream, on_bad_record="park")
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
