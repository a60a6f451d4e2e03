"""The months of the bench in a minute: nothing dead is left after kills, and every row is as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.months import months

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
BATCHES = 200


def test_months_leave_no_dead_files_and_every_row(tmp_path: Path) -> None:
    steps: list[str] = []
    lines = {
        line.what.partition(": ")[2]: line for line in months(BATCHES, tmp_path, steps.append, pace_s=0.0)
    }
    value = {what: line.value for what, line in lines.items()}
    assert value["dead files once the retention is over"] == 0
    assert value["rows that are not as they should be"] == 0
    assert value["kills"] == 2
    assert min(value[f"commits, {name}"] for name in ("journal", "log")) >= BATCHES
    assert value["compactions"] > 0
    assert value["files of the log that a batch meets, most, last fifth"] <= 200
    assert all(line.value > 0 for what, line in lines.items() if what.endswith("last fifth"))
    assert f"batch {BATCHES} of {BATCHES}, 2 kills so far" in steps
