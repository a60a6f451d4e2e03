"""Rows by key on a file system of 16 MiB: an error with its folder, no signal; with more room the service goes on."""

from __future__ import annotations

import json
import signal
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from schemas.errors import Code
from schemas.settings.config import load
from schemas.table import declare
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.verify.judge import verify_topics
from tests.kit.process import Process
from tests.kit.small_disk import resize, small_tmpfs

pytestmark = pytest.mark.timeout(1_200)
TABLE = declare(
    {"name": "wide", "columns": {"id": "bigint", "v": "string"}, "primary_key": ["id"], "vnode_count": 4}
)
ROWS, WIDTH = 40_000, 1_000


def send_rows(kafka: KafkaSettings, topic: str, rows: range, letter: str) -> None:
    producer = Producer(kafka.producer(**{"linger.ms": 50}))
    for number in rows:
        value = json.dumps({"id": number, "v": letter * WIDTH})
        producer.produce(topic, value, json.dumps({"id": number}))
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.faults
@pytest.mark.parametrize("configured", [True, False], ids=["rows_folder", "TMPDIR"])
def test_a_full_disk_of_the_rows_is_an_error_and_the_service_goes_on_when_there_is_room(
    broker: EmbeddedBroker, tmp_path: Path, configured: bool
) -> None:
    """More than twice as much as fits, in one lane."""
    kafka, unique = KafkaSettings(broker.bootstrap), uuid.uuid4().hex[:8]
    upstream, output = f"up-{unique}", f"copy-{unique}"
    create_topic(kafka, upstream, 1)
    config = tmp_path / "config.json"
    with small_tmpfs(tmp_path / "small", 16) as small:
        declared = {
            "kafka": {"bootstrap": broker.bootstrap},
            "upstream": {"topic": upstream, "format": "upsert"},
            "state": "state",
            "lanes": 1,
            "table": TABLE.to_dict(),
            "jobs": [{"name": "copy", "output": output, "output_partitions": 1}],
            **({"rows_folder": "small"} if configured else {}),
        }
        config.write_text(json.dumps(declared), encoding="utf-8")
        place = {} if configured else {"TMPDIR": str(small), "SPARK_LOCAL_DIRS": str(tmp_path)}
        send_rows(kafka, upstream, range(ROWS), "a")
        service = Process.start(config, BACKFILL_LOGS=str(tmp_path / "logs"), **place)
        try:
            service.await_event("interrupted")
            (first, *_) = service.events("interrupted")
            assert first["code"] == Code.ROWS_DISK_FULL
            assert "of 16 MiB free" in first["found"]
            resize(small, 512)
            service.await_event("recovered")
            named = [line for line in service.events("condition") if line.get("code") == Code.ROWS_DISK_FULL]
            assert str(small) in named[0]["where"]
            send_rows(kafka, upstream, range(ROWS // 2), "b")
            assert service.popen.poll() is None
            assert service.end(signal.SIGTERM) == 0
        finally:
            service.kill()
        assert service.wrote_lines_only()
        finished = Process.start(
            config, "--exit-when-complete", BACKFILL_LOGS=str(tmp_path / "logs"), **place
        )
        try:
            assert finished.popen.wait(600) == 0, finished.lines[-5:]
        finally:
            finished.kill()
    config_file = load(config)
    report = verify_topics(
        kafka,
        upstream,
        output,
        TABLE,
        require_complete=True,
        barriers=(config_file.topics.barriers, config_file.jobs[0].barrier_topic),
        formats=(config_file.upstream_format, config_file.jobs[0].format),
    )
    assert report.clean, report
