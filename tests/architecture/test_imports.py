"""The import rules of pyproject.toml hold, and the tool that checks them does see a breach."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("schemas", "state", "streaming")


def test_imports_point_one_way_and_pure_modules_stay_pure() -> None:
    broken, report = _lint(_ROOT)
    assert broken == 0, report


@pytest.mark.parametrize(
    ("module", "line", "rule"),
    [
        ("schemas/breach.py", "import state", "Imports point one way"),
        ("state/breach.py", "import streaming.core", "Imports point one way"),
        ("streaming/core/breach.py", "import time", "The core decides without"),
        ("schemas/breach.py", "import pyspark", "Record formats need neither"),
        ("streaming/verify/breach.py", "import streaming.core", "The judge and its readers"),
        ("streaming/verify/breach.py", "import schemas.avro.codec", "The judge and its readers"),
        ("streaming/reading/breach.py", "import schemas.formats.upsert", "The judge and its readers"),
        ("streaming/sink/breach.py", "import streaming.lane", "Rooms import those"),
        ("streaming/demo/breach.py", "import tests.bench.rig", "The product runs without tests"),
        ("streaming/broker/breach.py", "import streaming.demo", "Rooms import those"),
        ("streaming/lane/breach.py", "import streaming.sink.kafka_writer", "Batches and lanes know a sink"),
    ],
)
def test_a_breach_is_seen(module: str, line: str, rule: str, tmp_path: Path) -> None:
    shutil.copy(_ROOT / "pyproject.toml", tmp_path)
    for package in _PACKAGES:
        shutil.copytree(_ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / module).write_text(line + "\n")
    broken, report = _lint(tmp_path)
    assert broken != 0
    [verdict] = [
        each
        for each in report.splitlines()
        if each.startswith(rule) and each.split(" (")[0].endswith(("KEPT", "BROKEN"))
    ]
    assert "BROKEN" in verdict, report


def _lint(folder: Path) -> tuple[int, str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache"]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(folder), "COLUMNS": "200"},
    )
    return done.returncode, done.stdout + done.stderr
