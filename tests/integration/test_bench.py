"""A case of the bench as its command runs it, on a small table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.__main__ import Case, command
from tests.bench.report.results import read_results

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.thorough]


def test_a_case_is_measured_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command([Case.IDLE], rows=[3_000], seconds=3, output=tmp_path)
    printed = capsys.readouterr()
    assert "idle, 3,000 rows: " in printed.err
    lines = {line.what: line for line in read_results(tmp_path)["idle"].lines}
    batch = lines["no job: batch, median"]
    assert batch.value > 0
    assert batch.compared_with in printed.out
    steps = [line.value for what, line in lines.items() if what.startswith("no job: of which ")]
    assert len(steps) >= 4
    assert 0 < sum(steps) < 2 * batch.value


def test_a_table_of_any_size_has_topics_that_add_up_alike(tmp_path: Path) -> None:
    command([Case.LARGE], rows=[20_000], output=tmp_path)
    lines = {line.what.partition(": ")[2]: line.value for line in read_results(tmp_path)["large"].lines}
    assert lines[""] == 0  # outputs that add up to something else
    assert lines["snapshot"] > 0
    assert lines["snapshot, budget 2s"] > 0
