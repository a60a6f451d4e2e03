"""The local run as users know it: `docker compose up`, events, the output, an invalid record, and everything killed."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.containers import ROOT, no_compose
from tests.kit.real import await_condition

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]

# Ports of this machine may be taken, by a run of the user's own.
_NO_PORTS = "services: {kafka: {ports: !reset []}, backfill: {ports: !reset []}}\n"
_GARBAGE = """
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "kafka:19092"})
producer.produce("orders", b"no change", b"key", 2, on_delivery=lambda _, sent: print(sent.offset()))
producer.flush()
"""
_SUSPENDED = 11


@dataclass(frozen=True)
class Compose:
    """A project of its own."""

    project: str
    override: Path

    def __call__(self, *words: str) -> str:
        """`docker compose …`; its standard output."""
        done = self.finished(*words)
        assert done.returncode == 0, f"{words}\n{done.stdout[-2_000:]}\n{done.stderr[-6_000:]}\n{self.log()}"
        return done.stdout

    def log(self) -> str:
        """The last log lines of service and broker, which `down` takes away."""
        return self.finished("logs", "--no-color", "--tail", "60", "backfill", "kafka").stdout

    def finished(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`docker compose …`, whatever its exit status."""
        files = ["-f", str(ROOT / "compose.yaml"), "-f", str(self.override)]
        return subprocess.run(
            ["docker", "compose", "-p", self.project, "--progress", "plain", *files, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COMPOSE_IGNORE_ORPHANS": "1"},
        )

    def backfill(self, *words: str) -> str:
        """A command of ours in the service's container, as in the documentation."""
        return self("exec", "-T", "backfill", "backfill", *words)

    def counts(self, job: str) -> dict[str, int]:
        """The counts of a job's output."""
        found: dict[str, int] = json.loads(
            self.backfill("consume", "--job", job, "--until-complete", "--count", "--format", "json")
        )
        return found

    def verdicts(self, *options: str) -> dict[str, bool]:
        """By output, whether the law holds and every vnode is finished."""
        lines = self.backfill("verify", "--require-complete", "--json", *options).splitlines()
        return {report["output"]: report["clean"] for report in map(json.loads, lines)}


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Compose]:
    if reason := no_compose():
        pytest.skip(reason)
    override = tmp_path / "override.yaml"
    override.write_text(_NO_PORTS)
    project = Compose(f"backfill-{uuid.uuid4().hex[:8]}", override)
    try:
        yield project
    finally:
        project("down", "--volumes", "--timeout", "5")


def test_events_go_in_and_the_backfilled_topic_comes_out_whatever_is_killed(compose: Compose) -> None:
    """All of it in the image, which has no more than the service needs."""
    compose("up", "--build", "--wait")
    assert "50000 rows there now" in compose.backfill("produce", "--rows", "50000")
    compose.backfill("create", "--name", "copy", "--output", "copy", "--wait")
    assert compose.counts("copy")["inserts"] == 50_000
    assert compose.verdicts() == {"copy": True}

    record = "2@" + compose("exec", "-T", "backfill", "python", "-c", _GARBAGE).strip()
    status = ("exec", "-T", "backfill", "backfill", "status")
    await_condition(lambda: compose.finished(*status).returncode == _SUSPENDED, "the suspension")
    way_on = f"backfill resume --table orders --skip-record {record}"
    assert way_on in compose.finished(*status).stdout
    compose("exec", "-T", "backfill", *way_on.split())
    without = ("--skip-record", record)
    assert compose.verdicts(*without) == {"copy": True}

    compose.backfill("create", "--name", "slow", "--output", "slow", "--rate-limit", "2000")
    compose("up", "--detach", "--scale", "events=1", "events")
    assert json.loads(compose.backfill("status", "slow", "--json"))["jobs"][0]["share"] < 1
    compose("kill")
    compose("up", "--wait")
    compose.backfill("throttle", "slow", "unlimited")
    assert compose.counts("slow")["vnodes_finished"] == 64
    assert compose.verdicts(*without) == {"copy": True, "slow": True}
