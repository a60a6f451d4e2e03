"""Lines that a service of a benchmark logs."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.bench.rig import ServiceRun

_AT = "2026-01-31T12:00:00Z"
_LINES = [
    {"timestamp": _AT, "event": "building", "records": 10, "of": 30},
    {"timestamp": _AT, "event": "building", "records": 20, "of": 30},
    {"timestamp": _AT, "event": "batch", "changes": 9, "upstream_records": 30, "epoch": 1},
    {"timestamp": _AT, "event": "batch", "changes": 1, "upstream_records": 31, "epoch": 2},
]


def test_a_large_build_is_there_with_its_batch_whatever_was_logged_of_its_parts() -> None:
    text = "\n".join(map(json.dumps, _LINES))
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.stderr.write({text!r})"], stderr=subprocess.PIPE, text=True
    ) as process:
        run = ServiceRun(process)
        run.read_log()
        assert [run.await_changes(count).epoch for count in (30, 31)] == [1, 2]
        assert [records for _, records in run.parts] == [10, 20]
        assert len(run.batches) == 2


_BURNS = """
import os, sys, time
if not os.fork():
    while time.process_time() < 0.3: pass
    print("burnt", flush=True)
    sys.stdin.readline()
    os._exit(0)
os.wait()
print("gone", flush=True)
sys.stdin.readline()
"""


def test_the_cpu_of_workers_that_have_ended_stays_counted() -> None:
    command = [sys.executable, "-c", _BURNS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        run = ServiceRun(process)
        assert process.stdout.readline() == "burnt\n"
        assert run.cpu_s() > 0.2
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "gone\n"
        assert run.cpu_s() > 0.2
        print(file=process.stdin, flush=True)
