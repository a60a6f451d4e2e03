"""Left-overs of processes that were really killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas.table import declare
from streaming.lane.before.store import local_store
from streaming.runtime.paths import UNUSED_S, scratch, sweep_logs, sweep_rows, sweep_scratch

HOLDER = """
import signal, subprocess, sys
from streaming.runtime.paths import scratch
with scratch() as own:
    if "heir" in sys.argv:
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=(own.lock,))
    print(own.folder, flush=True)
    signal.pause()
"""
"""Holds a folder until it is killed. Its heir, if any, lives until the end of the input of both."""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@contextmanager
def holder(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    command = [sys.executable, "-c", HOLDER, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_live_one_is_not() -> None:
    with holder() as (killed, left), holder() as (_, held):
        assert sweep_scratch() == 0
        killed.kill()
        killed.wait()
        assert left.is_dir()
        assert sweep_scratch() == 1
        assert not left.exists()
        assert held.is_dir()


def test_a_folder_stays_for_as_long_as_what_was_started_with_it_lives() -> None:
    """A JVM reads from a pipe of its driver, and ends a moment later than it."""
    with holder("heir") as (killed, left):
        killed.kill()
        killed.wait()
        assert sweep_scratch() == 0
        assert left.is_dir()
        assert killed.stdin is not None
        killed.stdin.close()
        while not sweep_scratch():
            pass  # until the heir has read the end of its input
        assert not left.exists()


def test_a_session_that_sweeps_keeps_its_own_folder_and_leaves_nothing_when_it_ends(temporary: Path) -> None:
    left = temporary / "backfill-spark-left"
    left.mkdir()
    (left / "lock").touch()
    (left / "blocks").mkdir()
    with scratch() as own:
        assert sweep_scratch() == 1
        assert [path.name for path in temporary.iterdir()] == [Path(own.folder).name]
    assert list(temporary.iterdir()) == []


def test_what_is_no_folder_of_ours_stays(temporary: Path) -> None:
    elsewhere = temporary / "precious"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (temporary / "backfill-spark-link").symlink_to(elsewhere)
    (temporary / "backfill-spark-file").touch()
    (temporary / "backfill-spark-new").mkdir()
    assert sweep_scratch() == 0
    assert len(list(temporary.iterdir())) == 4


def test_rows_that_no_lane_has_opened_for_long_are_swept(temporary: Path) -> None:
    table = declare({"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"]})
    names = [f"backfill-{uuid.UUID(int=number)}-rows" for number in range(3)]
    for name in names:
        local_store(f"{name}/0-8", table).close()
    scratches = [temporary / f"backfill-rows-{end}" for end in ("old_1", "new_2")]
    for folder in scratches:
        folder.mkdir()
    (temporary / "backfill-rows.txt").touch()
    precious = temporary / "precious"
    precious.mkdir()
    (temporary / f"backfill-{uuid.UUID(int=9)}-rows").symlink_to(precious)
    long_ago = time.time() - UNUSED_S - 60
    for folder in (temporary / names[0], temporary / names[1], scratches[0]):
        for path in (folder, *folder.rglob("*")):
            os.utime(path, (long_ago, long_ago))
    local_store(f"{names[1]}/0-8", table).close()  # nothing is written, but it is in use
    assert sweep_rows(temporary) == 2
    assert not (temporary / names[0]).exists()
    assert not scratches[0].exists()
    assert len(list(temporary.iterdir())) == 6


def test_a_store_takes_the_place_of_those_of_other_lanes_with_its_vnodes(temporary: Path) -> None:
    table = declare({"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"]})
    for vnodes in ("0-8", "8-16", "0-5", "5-11"):
        local_store(f"rows/{vnodes}", table).close()
        local_store(f"rows/{vnodes}", table).close()
    assert sorted(path.name for path in (temporary / "rows").iterdir()) == ["0-5", "5-11"]
    local_store("rows/11-16", table).close()
    assert sorted(path.name for path in (temporary / "rows").iterdir()) == ["0-5", "11-16", "5-11"]


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def aged(file: Path, at: float) -> Path:
    file.touch()
    os.utime(file, (at, at))
    return file


def test_of_processes_that_are_gone_the_newest_logs_are_kept(tmp_path: Path) -> None:
    """By process: what one has written stays or goes together. An id that is used again is another process."""
    gone = dead_pid()
    old = [aged(tmp_path / f"spark-{gone}.{end}", 1_000.0) for end in ("log", "out", "log.1")]
    new = [
        aged(tmp_path / f"spark-{os.getpid()}.log", 2_000.0),
        aged(tmp_path / f"lane-{os.getpid()}.log", 1.0),
    ]
    other = [aged(tmp_path / name, 1.0) for name in ("kafka-data.log", "notes.txt", "failpoint-sent")]
    assert sweep_logs(tmp_path, keep=2) == 0
    assert sweep_logs(tmp_path, keep=1) == 3
    assert sorted(tmp_path.iterdir()) == sorted(new + other)
    assert not any(file.exists() for file in old)
    assert sweep_logs(tmp_path, keep=0) == 2


def test_logs_of_live_processes_stay(tmp_path: Path) -> None:
    (tmp_path / f"spark-{os.getpid()}.log").touch()
    (tmp_path / f"crash-20260101T000000-{os.getpid()}.log").touch()
    assert sweep_logs(tmp_path, keep=0) == 0
