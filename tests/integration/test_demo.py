"""The demo as a newcomer runs it, with a small table."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

COMMAND = [sys.executable, "-u", "-m", "streaming.cli.app", "demo"]
ROOT = Path(__file__).parents[2]


def started(*options: str, scratch: Path, folder: Path | None = None) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*COMMAND, *options],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_with(text: str) -> list[str]:
    """Command lines of processes that name a path."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        if text in line:
            found.append(line)
    return found


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="debezium"),
        pytest.param(("--from", "change"), id="change", marks=pytest.mark.thorough),
    ],
)
def test_the_demo_backfills_a_table_under_load_and_verifies_the_output(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    demo = started("--rows", "5000", "--live-seconds", "2", *options, scratch=tmp_path)
    printed, complaints = demo.communicate(timeout=280)
    assert (demo.returncode, complaints) == (0, "")
    ended = re.findall(r"^(\S[\w ]*): .*\([\d.]+ s\)$", printed, re.MULTILINE)
    assert ended == ["broker", "upstream", "Spark", "replica", "snapshot", "live changes", "verify"]
    assert re.search(r"verify +[\d,]+ records, the law holds", printed)
    assert re.search(r"after it +readable after [\d.]+ s", printed)
    rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [sorted(row) for row in rows] == 3 * [["amount", "id", "region"]]
    assert list(tmp_path.glob("backfill-*")) == []
    assert processes_with(str(tmp_path)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = started("--rows", "1000", scratch=tmp_path)
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("upstream"):  # Spark is starting now
            break
    assert processes_with(str(tmp_path)) != []
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=60)
    assert demo.returncode == 128 + signal.SIGINT
    assert list(tmp_path.glob("backfill-*")) == []
    assert processes_with(str(tmp_path)) == []


def test_a_folder_kept_before_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "backfill-demo").mkdir()
    demo = started("--keep", scratch=tmp_path, folder=tmp_path)
    _, complaint = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert complaint.startswith("USAGE at backfill-demo: found what an earlier demo has kept;")
