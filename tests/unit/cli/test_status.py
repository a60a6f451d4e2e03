"""`backfill status` fits into 80 columns, whatever it has to say, and asks the service itself how it is."""

from __future__ import annotations

import io
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest
from rich.console import Console

from schemas.errors import Code
from schemas.job import JobDefinition
from schemas.settings.http import HttpConfig
from state.values.last_end import EndKind, FaultReport, LastEnd
from state.values.plan import JobState
from state.values.progress import Completed, InProgress, Progress
from streaming.cli.jobs import status
from streaming.cli.jobs.status import ShownCondition, StatusExit, shown_condition
from streaming.cli.jobs.watching import StateForecasts
from streaming.control.service_api import Answer, read_condition
from streaming.control.state_view import JobView, StateView
from streaming.control.suspended import meaning_of
from streaming.core.forecast import Extent
from tests.kit.local_http import serving
from tests.kit.reports import TABLE, job, report

TOKEN = "a token of sixteen characters"
REASON = (
    "BARRIER_STALLED at orders-1@1234567: found an open transaction, for 412 s at least, with 118230 records from "
    "there on that no committed reader sees; next: end its producer, or abort it: kafka-transactions.sh find-hanging "
    "names it"
)


def condition_of(
    view: StateView, answer: Answer | None = None, *, late_s: float = 30.0, age_s: float | None = 1.0
) -> ShownCondition:
    """`age_s` is that of the process's last sign of life, None for one that left none."""
    seen_ms = None if age_s is None else round((time.time() - age_s) * 1_000)
    return shown_condition(answer, view, table="orders", late_s=late_s, seen_ms=seen_ms)


def shown(
    answer: Answer | None,
    vnode_count: int,
    *,
    late_s: float = 30.0,
    at_ms: int | None = None,
    has_replica: bool = True,
    moved_at: int = 0,
) -> list[str]:
    progress: dict[int, Progress] = {1: InProgress((5,), 2)}
    progress.update({vnode: Completed((9,), 50) for vnode in range(0, vnode_count, 2)})
    table = replace(TABLE, vnode_count=vnode_count)
    seen = JobView(
        job("a-job-with-a-name-of-some-length", table), progress, Extent(1_234_567_890, 9_876_543_210)
    )
    plan = replace(report(at_ms=at_ms).plan, moved_at=moved_at)
    owner = "process 4194304 on a-machine-with-a-long-name, started 2026-11-21T21:28:22Z"
    view = StateView(owner, 64, plan.epoch, (seen,), 11_111_111_100, plan)
    out = io.StringIO()
    condition = condition_of(view, answer, late_s=late_s)
    forecasts = StateForecasts().after(view)
    status._show(
        Console(file=out, width=80),
        condition,
        view,
        [seen],
        forecasts,
        has_replica=has_replica,
        answer=answer,
    )
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("vnode_count", [2, 3, 16, 63, 64, 65, 1_000, 32_768])
def test_no_line_is_wider_than_80_columns_and_the_vnodes_have_one(vnode_count: int) -> None:
    lines = shown(Answer("upstream stuck", ready=False, reason=REASON, batch_age_s=412.0), vnode_count)
    assert max(map(len, lines)) <= 80, lines
    (vnodes,) = [line for line in lines if line.endswith(f" of {vnode_count:d} vnodes")]
    if vnode_count <= 16:
        assert vnodes.split()[0] == "".join(
            "█" if v % 2 == 0 else "▄" if v == 1 else "·" for v in range(vnode_count)
        )


def test_where_nothing_is_kept_there_is_no_replica_of_no_rows() -> None:
    [line] = [line for line in shown(None, 16, has_replica=False) if line.startswith("replica")]
    assert line.split()[1:] == ["none,", "for", "rows", "without", "a", "key"]


def test_added_partitions_are_reported_with_what_may_come_of_them() -> None:
    assert not [line for line in shown(None, 16) if line.startswith("partitions")]
    text = " ".join(" ".join(shown(None, 16, moved_at=7 << 16)).split())
    assert f"partitions added, reported by barrier {7 << 16}: a key" in text
    assert "may be left with the older row" in text


def test_a_job_that_reads_the_upstream_falls_into_partitions() -> None:
    read = JobDefinition.declare({"name": "log", "output": "log", "read": "topic"}, TABLE).with_partitions(3)
    view = JobView.of(JobState(read, 1), {0: Completed((9,), 4), 1: InProgress((5,), 2)}, {}, (9, 9, 9))
    assert status.vnode_line(view) == "█▄· 1 of 3 partitions"
    assert view.extent == Extent(6, 4 + 9)


def test_a_process_that_has_ended_owns_nothing_any_more() -> None:
    assert [line for line in shown(Answer("serving", ready=True), 16) if line.startswith("owner")]
    assert [line for line in shown(Answer("stopping", ready=False), 16) if line.startswith("last owner")]


def test_it_says_what_the_service_says_of_itself() -> None:
    lines = shown(Answer("upstream stuck", ready=False, reason=REASON, batch_age_s=412.0), 64)
    assert lines[0].split(maxsplit=1) == ["condition", "upstream stuck: not ready, no batch for 6 min 52 s"]
    assert "BARRIER_STALLED" in lines[1]
    assert shown(Answer("serving", ready=True), 64)[0].split(maxsplit=1) == ["condition", "serving"]


def test_without_an_address_the_state_tells_whether_barriers_come_out() -> None:
    assert shown(None, 64)[0].split(maxsplit=1) == ["condition", "barriers come out"]
    assert "no barrier for" in shown(None, 64, at_ms=1_700_000_000_000)[0]


FAULT = FaultReport(
    Code.UNKNOWN_OP, "up-2@207978", "9 bytes", "a Change", "leave it out with --skip-record 2@207978"
)


def ended(kind: EndKind, fault: FaultReport | None = None, times: int = 1) -> LastEnd:
    now_ms = round(time.time() * 1_000)
    return LastEnd(kind, "somebody", now_ms, now_ms - 5_000, 7, fault, times)


@pytest.mark.parametrize(
    ("answer", "end", "age_s", "exit_status", "words"),
    [
        (Answer("serving", ready=True), None, 1.0, StatusExit.SERVING, "serving"),
        (Answer("catching up", ready=True), None, 1.0, StatusExit.BEHIND, "catching up"),
        (
            Answer("starting", ready=False),
            ended(EndKind.FAILED),
            1.0,
            StatusExit.BEHIND,
            "starting: not ready",
        ),
        (Answer("stopping", ready=False), None, 1.0, StatusExit.STOPPED, "stopping: not ready"),
        (
            Answer("suspended", ready=False),
            ended(EndKind.SUSPENDED, FAULT),
            1.0,
            StatusExit.SUSPENDED,
            "suspended since",
        ),
        (None, ended(EndKind.SUSPENDED, FAULT, 3), 1.0, StatusExit.SUSPENDED, "3 times in a row"),
        (None, ended(EndKind.SUSPENDED, FAULT), None, StatusExit.SUSPENDED, "its process is gone"),
        (None, ended(EndKind.STOPPED), None, StatusExit.STOPPED, "was stopped at"),
        (None, ended(EndKind.FAILED, FAULT, 5), None, StatusExit.STOPPED, "5 times in a row since"),
        (
            None,
            ended(EndKind.FAILED, FAULT, 5),
            1.0,
            StatusExit.BEHIND,
            "no batch so far; before that it ended by",
        ),
        (None, ended(EndKind.SILENT), 99.0, StatusExit.STOPPED, "ended without a word (killed?)"),
        (None, None, None, StatusExit.NOT_REACHABLE, "no sign of life of its process"),
        (None, None, 99.0, StatusExit.NOT_REACHABLE, "no sign of life since"),
        (None, None, 1.0, StatusExit.SERVING, "barriers come out"),
    ],
)
def test_the_exit_status_is_for_scripts(
    answer: Answer | None, end: LastEnd | None, age_s: float | None, exit_status: StatusExit, words: str
) -> None:
    plan = report().plan
    found = condition_of(StateView("me", 2, plan.epoch, (), 0, plan, end=end), answer, age_s=age_s)
    assert found.exit_status is exit_status
    assert words in found.words
    if end is not None and end.kind is EndKind.SUSPENDED:
        assert found.commands == (
            "backfill resume --table orders --skip-record 2@207978",
            "backfill resume --table orders",
        )
        assert [meaning_of(each) for each in found.commands] == [
            "without the record",
            "once the cause is repaired",
        ]
        assert found.reason is not None
        assert "UNKNOWN_OP at up-2@207978" in found.reason


def held(partition: int, seconds: float | None) -> dict[str, object]:
    return {"partition": partition, "held_s": seconds, "held_offset": 7_000, "unstable": 1_234}


def work(name: str, failures: int) -> dict[str, object]:
    return {
        "work": name,
        "running_s": None,
        "failures": failures,
        "error": "OSError: no space" if failures else None,
        "again_in_s": 40.0,
        "next_step": "look at the disk",
    }


class Answers(BaseHTTPRequestHandler):
    """A service that is stuck."""

    def do_GET(self) -> None:
        if self.path == "/readyz":
            self.say(503, b"stuck\n")
        elif self.headers.get("Authorization") == f"Bearer {TOKEN}":
            reason = {"code": "NO_PROGRESS", "where": None, "found": "nothing", "next_step": "look"}
            answer = {
                "condition": "stuck",
                "ready": False,
                "reason": reason,
                "batch_age_s": 77.0,
                "maintenance": [work("cleaning", 0), work("compaction", 3)],
                "partitions": [held(0, None), held(3, 9.0), held(4, 65.2)],
                "disk": {
                    "is_low": True,
                    "free_bytes": 3 << 29,
                    "rows_low": True,
                    "rows_free_bytes": 40 << 20,
                    "rows_bytes": 300 << 20,
                },
            }
            self.say(200, json.dumps(answer).encode())
        else:
            self.say(401, b"{}")

    def say(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def service() -> Iterator[int]:
    with serving(Answers) as address:
        yield int(address.rpartition(":")[2])


def test_the_service_is_asked_at_its_address_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with service() as port:
        config = HttpConfig.model_validate({"listen": f"0.0.0.0:{port}", "token_env": "STATUS_TOKEN"})
        assert read_condition(config) == Answer("stuck", ready=False)
        monkeypatch.setenv("STATUS_TOKEN", TOKEN)
        said = read_condition(config)
        assert said is not None
        assert replace(said, troubles=()) == Answer(
            "stuck", False, "NO_PROGRESS: found nothing; next: look", 77.0
        )
        compaction, transaction, *disks = said.troubles
        assert compaction == (
            "compaction has failed 3 times in a row (OSError: no space), again in 40 s; next: look at the disk"
        )
        assert re.fullmatch(
            r"an open transaction holds back partition 4 at offset 7000 since \d\d:\d\d:\d\d: "
            r"1,234 records there are late by 65 s; next: end its producer, .*",
            transaction,
        )
        assert disks == [
            "1.5 GiB are free on the state's disk, less than a compaction may write; next: give it more room",
            "40 MiB are free for rows by key, beside the 300 MiB that they take; next: make room, or name a folder on "
            "a larger disk as rows_folder",
        ]


def test_what_goes_wrong_beside_the_batches_is_shown() -> None:
    lines = shown(Answer("serving", ready=True, troubles=("cleaning has failed " + "often " * 30,)), 64)
    assert lines[1].split()[:4] == ["trouble", "cleaning", "has", "failed"]
    assert max(map(len, lines)) <= 80


def test_nobody_who_answers_is_no_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert (
            read_condition(HttpConfig.model_validate({"listen": f"127.0.0.1:{taken.getsockname()[1]}"}))
            is None
        )
    assert read_condition(HttpConfig.model_validate({})) is None
