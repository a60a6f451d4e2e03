"""`backfill run` as a process: it ends by itself, by signal at any moment, and leaves nothing running."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from state.journal import Journal
from state.storage import Storage
from state.values.last_end import EndKind
from streaming.kafka.barriers import beside_barrier_in
from streaming.kafka.errors import COORDINATOR_MOVES
from tests.kit.process import Process
from tests.kit.real import SetUp, Stage, await_condition, records


def write_config(stage: Stage, **over: object) -> Path:
    path = stage.folder / "config.json"
    declared = {**stage.declared(), "spark": {"driver_memory": "512m"}, **over}
    path.write_text(json.dumps(declared))
    return path


def test_it_exits_with_0_when_every_job_is_complete(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    for number in range(500):
        stage.upstream.put((number, "EU", None, None))
    process = Process.start(write_config(stage, barriers="inject"), "--exit-when-complete")
    assert process.end() == 0, process.lines[-5:]
    report = stage.verify()
    assert report.clean, report
    assert report.snapshot_rows == 500


def test_sigterm_while_it_serves_ends_it_with_0_and_the_output_whole(set_up: SetUp) -> None:
    stage = set_up({"name": "copy", "rate_limit": 100})
    for number in range(300):
        stage.upstream.put((number, "EU", None, None))
    process = Process.start(write_config(stage, barriers="inject", barrier_interval="200ms"))
    process.await_event("batch")
    assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
    with stage.running(barriers="inject", barrier_interval="200ms") as run:
        run.until(lambda: run.is_complete("copy"))
    stage.assert_lawful()


def test_its_lag_is_that_of_a_group_and_its_clients_have_the_settings_of_the_file(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = "zone-7f3ab2c1"
    monkeypatch.setenv("ZONE", zone)
    stage = set_up({"name": "copy"})
    upstream = stage.upstream
    for number in range(300):
        upstream.put((number, "EU", None, None))
    upstream.flush()
    passed = {
        "consumer": {"client.rack": "${ZONE}", "fetch.max.bytes": 10_000_000},
        "producer": {"compression.type": "zstd"},
        "admin": {"socket.keepalive.enable": True},
    }
    declared = stage.declared()
    config = write_config(
        stage,
        kafka={**declared["kafka"], **passed},
        barriers="inject",
        barrier_interval="2s",
        limits={"short_records": 0},  # Spark's own clients, too
    )
    process = Process.start(config)
    process.await_event("batch")
    watching = Consumer(upstream.kafka.consumer(**{"group.id": f"backfill-{upstream.name}"}))
    parts = [TopicPartition(upstream.name, number) for number in range(upstream.partitions)]

    def lag() -> int:
        ends = [watching.get_watermark_offsets(part, timeout=30)[1] for part in parts]
        try:
            committed = watching.committed(parts, timeout=30)
        except KafkaException as raised:
            if raised.args[0].code() not in COORDINATOR_MOVES:  # as for the first group of a new broker
                raise
            return sum(ends)
        return sum(ends) - sum(max(each.offset, 0) for each in committed)

    await_condition(lambda: lag() < 50, "nearly no lag")
    before, storage = lag(), Storage(str(stage.config().state))

    def journal() -> str:
        return str(Journal(storage, upstream.table).current)

    await_condition(lambda: "copy" in journal(), "a plan with the job, which the first one has not")
    command = [sys.executable, "-m", "streaming.cli.app", "status", "-c", str(config), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert '"copy"' in shown
    assert zone not in shown + journal()
    assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
    for number in range(1_000):
        upstream.put((number, "EU", None, "more"))
    upstream.flush()
    assert lag() >= before + 900
    watching.close()
    assert stage.verify().clean


def test_what_has_piled_up_is_read_at_the_limit_and_jobs_share_theirs(set_up: SetUp) -> None:
    read_limit, rate_limit, rows = 100, 40, 1_000
    stage = set_up({"name": "copy"}, {"name": "second"}, beside=True)
    upstream = stage.upstream
    for number in range(rows):
        upstream.put((number, "EU", None, None))
    upstream.flush()
    declared = stage.declared()
    config = write_config(
        stage,
        upstream={**declared["upstream"], "read_limit": read_limit},
        barriers="inject",
        barrier_interval="500ms",
        limits={"rate_limit": rate_limit},
    )
    process = Process.start(config)
    process.await_event("batch")
    await_condition(lambda: process.events("batch")[-1]["upstream_records"] >= rows, "all is read")
    batches = process.events("batch")
    assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
    # A second's worth at first, and half a second's from turn to turn.
    topic = str(stage.config().topics.barriers)
    written = [
        [found for each in part if (found := beside_barrier_in(each))]
        for part in records(upstream.kafka, topic)
    ]
    first_ms = written[0][0].barrier.injected_at_ms
    for each in zip(*written, strict=True):
        since_s = (each[0].barrier.injected_at_ms - first_ms) / 1_000
        assert sum(found.end for found in each) <= read_limit * (since_s + 1.6)
    began, ended = (datetime.fromisoformat(batches[at]["timestamp"]) for at in (0, -1))
    took_s = (ended - began).total_seconds()
    assert 0 < sum(each["snapshot_rows"] for each in batches) <= rate_limit * (took_s + 3)
    assert stage.verify(complete=False).clean


@pytest.mark.parametrize("child", ["java", "python"])
def test_sigterm_while_things_come_up_ends_it_with_0(set_up: SetUp, child: str) -> None:
    stage = set_up({"name": "copy"})
    process = Process.start(write_config(stage))
    if child == "java":  # Spark's JVM is there, and does not answer yet
        await_condition(lambda: any("java" in each.name() for each in process.children()), "a JVM")
    else:  # the interpreter has only just come to our code
        await_condition(lambda: _catches(process.popen.pid, signal.SIGTERM), "a handler")
    assert not process.says("serving")
    assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
    assert not any("Traceback" in line for line in process.lines)


def test_sigterm_in_the_first_batch_of_a_start_is_a_stop_in_the_state(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    stage.upstream.put((1, "EU", None, None))
    stage.upstream.barrier()
    at_point = {"BACKFILL_FAILPOINT": "planned:sleep", "BACKFILL_LOGS": str(stage.folder)}
    process = Process.start(write_config(stage), **at_point)
    await_condition((stage.folder / "failpoint-planned").exists, "the first batch")
    assert not process.says("serving")
    assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
    end = Journal(Storage(str(stage.config().state)), stage.upstream.table).last_end
    assert end is not None
    assert end.kind is EndKind.STOPPED


@pytest.mark.thorough
def test_sigterm_to_the_whole_group_is_an_end_as_good_as_any(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    stage.upstream.put((1, "EU", None, None))
    process = Process.start(write_config(stage, barriers="inject", barrier_interval="200ms"))
    process.await_event("batch")
    for each in process.children():
        each.send_signal(signal.SIGTERM)
    assert process.end(signal.SIGTERM) == 0, process.lines[-5:]


def test_an_error_is_one_line_and_a_status(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    stage.upstream.barrier()
    offset = stage.upstream.send(1, b"\x02", b"\x00\x00")
    stage.upstream.barrier()
    process = Process.start(write_config(stage))
    assert process.end() == 4
    [line] = [line for line in process.lines if not line.startswith("{")]
    assert re.fullmatch(
        rf"AVRO_TRUNCATED at {stage.upstream.name}-1@{offset}: found .+; expected .+; "
        rf"next: .+ --skip-record 1@{offset}\n",
        line,
    )


def _catches(pid: int, number: signal.Signals) -> bool:
    """True if the process has a handler of its own for the signal (proc(5), SigCgt)."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)
