"""Rows of fifty kilobytes and of nearly a megabyte, with the default settings: they go through, in bounded memory."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.verify.judge import verify_topics
from tests.kit.process import Process
from tests.kit.wide import WIDE, send_wide_rows, watched

pytestmark = pytest.mark.timeout(1_800)
MOST_MIB = 3 * 1024


@pytest.mark.faults
@pytest.mark.parametrize("alike", [False, True], ids=["noise", "one letter"])
@pytest.mark.parametrize(("rows", "width"), [(100_000, 50_000), (3_000, 900_000)])
def test_wide_rows_go_through_with_the_default_settings(
    broker: EmbeddedBroker, tmp_path: Path, rows: int, width: int, alike: bool
) -> None:
    kafka, unique = KafkaSettings(broker.bootstrap), uuid.uuid4().hex[:8]
    upstream, output = f"up-{unique}", f"copy-{unique}"
    create_topic(kafka, upstream, 4)
    send_wide_rows(kafka, upstream, rows, width, alike=alike)
    config = tmp_path / "config.json"
    declared = {
        "kafka": {"bootstrap": broker.bootstrap},
        "upstream": upstream,
        "state": "state",
        "table": WIDE.to_dict(),
        "jobs": [{"name": "copy", "output": output}],
    }
    config.write_text(json.dumps(declared), encoding="utf-8")
    service = Process.start(config, "--exit-when-complete", BACKFILL_LOGS=str(tmp_path / "logs"))
    try:
        with watched(service.popen.pid) as memory:
            status = service.popen.wait(1_500)
        service.reader.join()
    finally:
        service.kill()
    print(f"peak {memory.peak_mib:.0f} MiB: {memory.by_name}")  # noqa: T201  # figures, shown with -s
    for batch in service.events("batch"):
        print({name: value for name, value in batch.items() if value})  # noqa: T201  # likewise
    assert status == 0, service.lines[-5:]
    report = verify_topics(kafka, upstream, output, WIDE, require_complete=True)
    assert report.clean, report
    assert report.snapshot_rows == rows
    assert memory.peak_mib <= MOST_MIB, memory.by_name
