"""A suspended service is killed, or taken over from: its successor is suspended by the same fault, and is led on."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code, Fenced
from state.values.last_end import LastEnd
from streaming.broker.embedded import EmbeddedBroker
from streaming.cli.app import main
from streaming.cli.jobs.status import StatusExit
from tests.faults.test_taken_and_grown import TABLE, row
from tests.kit.killed_service import KilledService
from tests.kit.process import Process
from tests.kit.real import WAIT_S, await_condition
from tests.kit.real_upstream import UpsertUpstream

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@dataclass
class Suspended:
    """A service whose table is suspended by one record, at `where`; `skip` is its place as commands take it."""

    tried: KilledService
    where: str
    skip: str
    capsys: pytest.CaptureFixture[str]

    def says(self, *words: str) -> tuple[int, str]:
        """The exit status of a command, and what it printed."""
        self.capsys.readouterr()
        status = main([*words, "--config", str(self.tried.file)])
        return status, self.capsys.readouterr().out

    def status(self) -> tuple[int, dict[str, Any]]:
        status, out = self.says("status", "--json")
        return status, json.loads(out)

    @contextmanager
    def again(self, before: LastEnd | None) -> Iterator[tuple[Process, LastEnd]]:
        """A further service, once its table is suspended; `before` is the end of the one before."""
        with self.tried.runs() as process:
            process.await_event("table_suspended")
            end = self.tried.last_end()
            assert end.is_suspended
            assert end.fault is not None
            assert (end.fault.code, end.fault.where) == (Code.JSON_MALFORMED, self.where)
            if before is not None:
                assert (end.since_ms, end.times) == (before.since_ms, before.times + 1)
                assert end.owner != before.owner
            yield process, end

    def goes_on(self, process: Process) -> None:
        """Leave the record out by the command, stop the service, and judge what it wrote."""
        words = "resume", "--table", TABLE.name, "--skip-record", self.skip
        assert self.says(*words, "--timeout", str(WAIT_S))[0] == 0, process.lines[-5:]
        assert self.status()[1]["last_end"] is None
        assert process.events("record_left_out")[0]["where"] == self.where
        assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
        self.tried.completes()
        assert self.says("verify", "--require-complete", "--skip-record", self.skip)[0] == 0
        assert self.tried.rows() == self.tried.upstream.rows


@pytest.fixture
def suspended(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Suspended]:
    """A table with a job that is complete, and behind that an invalid record among valid ones."""
    tried = KilledService(broker, tmp_path, TABLE, UpsertUpstream)
    upstream = tried.upstream
    for number in range(300):
        upstream.put(row(number))
    tried.completes()
    upstream.put(row(7, "before it"))
    skip = upstream.send(0, b'{"id": 7}', b"no row")
    for number in range(0, 300, 7):
        upstream.put(row(number, "behind it"))
    yield Suspended(tried, f"{upstream.name}-0@{skip}", f"0@{skip}", capsys)
    upstream.close()


def test_it_is_killed_again_and_again(suspended: Suspended) -> None:
    with suspended.again(None) as (process, first):
        process.kill()
        assert process.end() == -9
    status, shown = suspended.status()
    assert status == StatusExit.SUSPENDED
    assert shown["last_end"]["times"] == 1
    with suspended.again(first) as (process, second):
        process.kill()
    with suspended.again(second) as (process, third):
        assert third.times == 3
        status, shown = suspended.status()
        assert (status, shown["last_end"]["since_ms"]) == (StatusExit.SUSPENDED, first.since_ms)
        assert not process.says("ended_without_a_word")  # it has said how it ended
        suspended.goes_on(process)


def test_a_decision_that_comes_while_no_service_runs_is_found(suspended: Suspended) -> None:
    with suspended.again(None) as (process, _):
        process.kill()
        assert process.end() == -9
    words = "resume", "--table", TABLE.name, "--skip-record", suspended.skip
    assert suspended.says(*words, "--no-wait")[0] == 0
    with suspended.tried.runs() as process:
        process.await_event("record_left_out")
        await_condition(lambda: suspended.status()[1]["last_end"] is None, "a batch without the record")
        assert [line["times"] for line in process.events("table_suspended")] == [2]
        assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
    suspended.tried.completes()
    assert suspended.says("verify", "--require-complete", "--skip-record", suspended.skip)[0] == 0


def test_another_instance_takes_over_from_it(suspended: Suspended) -> None:
    with suspended.again(None) as (first, begun), suspended.again(begun) as (second, _):
        assert first.end() == Fenced.exit_status, first.lines[-5:]
        assert f"process {second.popen.pid}" in first.lines[-1]
        suspended.goes_on(second)
