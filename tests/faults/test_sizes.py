"""Backlogs of an outage of hours, or of an old topic, are handled in parts, in bounded memory.

`OUTAGE` and `TOPIC` count records; a smaller number in the environment makes a quick run of it.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from streaming.events.sender import ChangeSender, produce_rows
from streaming.verify.judge import verify_topics
from tests.bench.rig import TABLE
from tests.faults.conftest import KillScenarios
from tests.kit.kill_scenario import SHARES, KillScenario, spark_of, workers_of
from tests.kit.process import Process
from tests.kit.real import await_condition
from tests.kit.wide import watched

pytestmark = [pytest.mark.timeout(3_600), pytest.mark.faults]
OUTAGE = int(os.environ.get("OUTAGE", "12_000_000"))
TOPIC = int(os.environ.get("TOPIC", "20_000_000"))
MOST_MIB = 3 * 1024
_CHUNK = 50_000
_LONG_S = 1_200.0


def test_twelve_million_changes_in_one_interval_with_two_jobs_open(kill_scenario: KillScenarios) -> None:
    """Two lanes, default settings; killed in the middle of it."""
    tried = kill_scenario(rows=100_000, rate_limit=None, config={"lanes": 2, "barrier_interval": "1s"})
    other = f"{tried.output}-two"
    tried.declare_job({"name": "two", "output": other, "filter": "amount >= 100"})
    tried.completes()
    sender = ChangeSender(tried.kafka, tried.upstream)
    for _ in range(0, OUTAGE, _CHUNK):
        sender.send(tried.generator.mixed(_CHUNK, SHARES))
    sender.flush()
    before = _log_files(tried)
    killed = tried.killed_when(
        lambda: _log_files(tried) - before > OUTAGE // 400_000, "a third of its parts", limit_s=_LONG_S
    )
    assert not _has_taken(killed, OUTAGE), "it was not in the middle"
    process = tried.start()
    with watched(process.popen.pid) as memory:
        while not _has_taken(process, OUTAGE):
            await_condition(
                lambda: _has_taken(process, OUTAGE) or process.popen.poll() is not None, "it", limit_s=_LONG_S
            )
            assert process.popen.poll() is None, process.lines[-5:]
    assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
    print(f"peak {memory.peak_mib:.0f} MiB: {memory.by_name}; {_longest(process)}")  # noqa: T201  # figures, with -s
    assert memory.peak_mib <= MOST_MIB, memory.by_name
    tried.judge()
    condition = tried.condition("amount >= 100")
    report = verify_topics(
        tried.kafka, tried.upstream, other, TABLE, condition=condition, require_complete=True
    )
    assert report.clean, report


def _log_files(tried: KillScenario) -> int:
    """Also those of parts whose batch has not come to its end."""
    return len(list((tried.folder / "state/replica/log").glob("*.parquet")))


def _longest(process: Process) -> dict[str, Any]:
    return max(process.events("batch"), key=lambda batch: int(batch["changes"]), default={"changes": 0})


def _has_taken(process: Process, changes: int) -> bool:
    return int(_longest(process)["changes"]) >= changes * 0.9


def test_a_large_topic_is_built_in_parts_whatever_dies_meanwhile(kill_scenario: KillScenarios) -> None:
    """A worker, the JVM and the whole service; each start goes on with the next part."""
    tried = kill_scenario(rows=0, rate_limit=None, config={"lanes": 2, "barrier_interval": "1s"})
    produce_rows(ChangeSender(tried.kafka, tried.upstream), tried.generator, TOPIC)

    first = tried.start()
    _await_built(first, 0.25)
    for worker in workers_of(first)[1:]:
        worker.kill()
    _await_built(first, 0.5)
    spark_of(first).kill()
    first.end()

    second = tried.start()
    _await_built(second, 0.8)
    assert _built(second, 0) >= 0.4, "it began anew"
    second.kill()
    second.popen.wait()

    third = tried.recovers(limit_s=_LONG_S)
    assert _built(third, 0) >= 0.7, "it began anew"
    assert third.end(limit_s=_LONG_S) == 0, third.lines[-5:]
    tried.judge()


def _built(process: Process, number: int) -> float:
    """The share of the topic that is in the log, as a line of its log says."""
    line = process.events("building")[number]
    return float(line["records"]) / float(line["of"])


def _await_built(process: Process, share: float) -> None:
    def is_there() -> bool:
        return bool(process.events("building")) and _built(process, -1) >= share

    await_condition(
        lambda: is_there() or process.popen.poll() is not None, f"{share:.0%} of the topic", limit_s=_LONG_S
    )
    assert process.popen.poll() is None, process.lines[-5:]
