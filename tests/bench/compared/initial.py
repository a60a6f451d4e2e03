"""A table of PostgreSQL to an output topic, here and by Debezium's own incremental snapshot.

Both in one run, one after the other, on the same broker, server and worker of Kafka Connect. Debezium's chunks are ten
times as large as its default, which makes it faster. Its topic has events as they come; the output of the service is
exactly once, and has the table's columns as Avro.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic, watermarks
from tests.bench.report.line import Line, Notify
from tests.kit.connect import large_table
from tests.kit.connect.platform import Platform, platform_on
from tests.kit.connect.source import Source
from tests.kit.connect.table import Database
from tests.kit.process import Process
from tests.kit.real import await_condition

LIMIT_S = 1_800.0
SIGNALS = "public.signals"
_OURS = {
    "snapshot.mode": "no_data",
    "time.precision.mode": "microseconds",
    "heartbeat.interval.ms": "500",
    "heartbeat.action.query": "SELECT pg_logical_emit_message(true, 'heartbeat', '')",
}
_THEIRS = {
    "snapshot.mode": "no_data",
    "table.include.list": f"{large_table.NAME},{SIGNALS}",
    "signal.data.collection": SIGNALS,
    "incremental.snapshot.chunk.size": "10240",
}


def initial(rows: int, readers: int, folder: Path, notify: Notify) -> list[Line]:
    """Rows per second from the table to the end of an output, against Debezium's to the end of its topic."""
    with EmbeddedBroker() as broker, platform_on(broker.bootstrap) as platform:
        kafka = KafkaSettings(broker.bootstrap)
        notify("the service")
        ours = rows / _by_the_service(platform, kafka, rows, readers, folder)
        notify("Debezium's incremental snapshot")
        theirs = rows / _by_debezium(platform, kafka, rows)
    what = f"{rows:,} rows of PostgreSQL, readers: {readers}, to the end of the output"
    return [Line(what, ours, "rows/s", "Debezium's incremental snapshot, to its topic", theirs)]


@contextmanager
def _made(platform: Platform, name: str, rows: int, over: dict[str, str]) -> Iterator[Source]:
    signals = f"CREATE TABLE {SIGNALS} (id text PRIMARY KEY, type text, data text)"
    platform.postgres.create(name, *large_table.made(rows), signals)
    source = Source(platform.connect, platform.postgres, name, large_table.NAME, over)
    source.begin()
    try:
        yield source
    finally:
        source.end()


def _by_the_service(platform: Platform, kafka: KafkaSettings, rows: int, readers: int, folder: Path) -> float:
    """Seconds from the moment that it serves to the end of the backfill."""
    name = "ours"
    topic = f"{name}.{large_table.NAME}"
    for made in (topic, f"{topic}.barriers"):
        create_topic(kafka, made, 4)
    with _made(platform, name, rows, _OURS):
        dsn = Database(platform.postgres, name, folder).access.dsn.file
        start = {
            "dsn_file": str(dsn),
            "table": large_table.NAME,
            "slot": name,
            "readers": readers,
            "connector_url": platform.connect.url_of(name),
        }
        declared = {
            "kafka": {"bootstrap": kafka.bootstrap},
            "upstream": {"topic": topic, "format": "debezium", "decimal": "precise"},
            "barrier_topic": f"{topic}.barriers",
            "state": "state",
            "table": large_table.DECLARED,
            "jobs": [{"name": "copy", "output": "copy"}],
            "initial": {"postgres": start},
        }
        file = folder / "config.json"
        file.write_text(json.dumps(declared), encoding="utf-8")
        process = Process.start(file, "--exit-when-complete")
        try:
            process.await_event("serving")
            began_s = time.monotonic()
            assert process.popen.wait(LIMIT_S) == 0, process.lines[-5:]
            return time.monotonic() - began_s
        finally:
            process.kill()


def _by_debezium(platform: Platform, kafka: KafkaSettings, rows: int) -> float:
    """Seconds from the signal to the last row in its topic."""
    name = "theirs"
    topic = f"{name}.{large_table.NAME}"
    create_topic(kafka, topic, 4)
    snapshot = json.dumps({"data-collections": [large_table.NAME], "type": "incremental"})
    with _made(platform, name, rows, _THEIRS), platform.postgres.connect(name) as session:
        began_s = time.monotonic()
        session.execute(f"INSERT INTO {SIGNALS} VALUES ('1', 'execute-snapshot', %s)", [snapshot])  # noqa: S608 (ours)
        await_condition(
            lambda: sum(marks.high for marks in watermarks(kafka, topic)) >= rows,
            "all rows in the topic",
            limit_s=LIMIT_S,
        )
        return time.monotonic() - began_s
