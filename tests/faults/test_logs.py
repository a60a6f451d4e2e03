"""A topic of two logs, and a server that went back: kills, then the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code
from streaming.broker.embedded import EmbeddedBroker
from tests.faults.test_taken_and_grown import TABLE, row
from tests.kit.debezium import DebeziumUpstream
from tests.kit.killed_service import KilledService

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800)]
POINTS = "planned@1", "lane-sent@1", "lane-committed@1", "replicated@1", "settled@1"
T0 = 1_730_000_000_000


class DatabasesUpstream(DebeziumUpstream):
    """Connectors of several databases, each with a log of its own; one of them writes at a time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._db, self._lsns, self._now_ms = "one", {"one": 9_000_000, "two": 1_000}, T0
        self._lsn = self._lsns["one"]

    def writes(self, db: str, lsn: int | None = None) -> None:
        """From now on; `lsn`: where its log is begun anew."""
        self._lsns[self._db] = self._lsn
        self._db, self._lsn = db, self._lsns[db] if lsn is None else lsn
        self._now_ms += 60_000

    def _event_of(self, op: str, after: dict[str, Any] | None) -> dict[str, Any]:
        self._now_ms += 1
        event = super()._event_of(op, after)
        own = {"name": self._db, "db": self._db, "ts_ms": self._now_ms}
        return event | {"source": event["source"] | own}


def started(broker: EmbeddedBroker, folder: Path) -> tuple[KilledService, DatabasesUpstream]:
    tried = KilledService(broker, folder, TABLE, DatabasesUpstream, lanes=2)
    upstream = tried.upstream
    assert isinstance(upstream, DatabasesUpstream)
    for number in range(300):
        upstream.put(row(number))
    tried.completes()
    return tried, upstream


def test_a_topic_of_two_logs(broker: EmbeddedBroker, tmp_path: Path) -> None:
    tried, upstream = started(broker, tmp_path)
    for version, point in enumerate(POINTS):
        for db in ("two", "one"):
            upstream.writes(db)
            for number in range(version, 300, 7):
                upstream.put(row(number, f"{db} {version}"))
            upstream.again(20)
        tried.falls(point)
        upstream.again(10)
        tried.completes()
        assert tried.rows() == upstream.rows
    upstream.close()


def test_a_server_that_went_back(broker: EmbeddedBroker, tmp_path: Path) -> None:
    tried, upstream = started(broker, tmp_path)
    for version, point in enumerate(POINTS):
        upstream.writes("one", 50_000 - 1_000 * version)
        for number in range(version, 300, 7):
            upstream.put(row(number, f"anew {version}"))
        assert tried.suspends() is Code.LOG_WENT_BACK
        tried.falls(point, "--accept-log-reset")
        # A batch that was planned with it may have to be judged again.
        tried.completes("--accept-log-reset")
        assert tried.rows() == upstream.rows
    upstream.close()
