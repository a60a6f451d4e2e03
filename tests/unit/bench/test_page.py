from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streaming.dev.bench.report.line import Line, Summary, summarised
from streaming.dev.bench.report.page import draw, table, with_tables
from streaming.dev.bench.report.results import write_results

RATE = "10 changes/s: rate, last fifth"
COURSE = ((0.0, 1.0), (15.0, 2.0))
LINES = summarised(
    [
        Line(RATE, 1_234, "rows/s", "pass-through", 1_000, COURSE),
        Line(RATE, 1_000, "rows/s", "pass-through", 1_000, COURSE),
        Line("findings", 0, ""),
    ]
)


def test_a_table_has_a_row_for_each_line() -> None:
    _, _, rate, findings = table(LINES).splitlines()
    assert rate == f"| {RATE} | 1,117 | rows/s | 1,000 to 1,234 | pass-through | 1,000 | 1.12 |"
    assert findings == "| findings | 0 |  |  |  |  |  |"


def test_tables_are_replaced_and_the_words_around_them_stay(tmp_path: Path) -> None:
    write_results(tmp_path, "snapshot", LINES)
    page = "before\n<!-- bench snapshot -->\nold\n<!-- end -->\nafter\n"
    filled = with_tables(page, tmp_path)
    assert filled == f"before\n<!-- bench snapshot -->\n{table(LINES)}<!-- end -->\nafter\n"
    assert with_tables(filled, tmp_path) == filled


def without_courses(lines: list[Summary]) -> list[Summary]:
    return [replace(line, course=()) for line in lines]


@pytest.mark.parametrize(
    ("case", "lines", "label"),
    [("history", LINES, "rate"), ("snapshot", without_courses(LINES), RATE)],
)
def test_a_picture_is_the_same_file_each_time(
    case: str, lines: list[Summary], label: str, tmp_path: Path
) -> None:
    first, second = (tmp_path / folder / "bench.svg" for folder in ("a", "b"))
    for file in (first, second):
        file.parent.mkdir()
        draw(case, lines, file)
    assert first.read_bytes() == second.read_bytes()
    assert f">{label}</text>" in first.read_text(encoding="utf-8")


def test_there_is_no_picture_of_what_has_neither_a_course_nor_bars(tmp_path: Path) -> None:
    draw("start", without_courses(LINES), tmp_path / "none.svg")
    assert not list(tmp_path.iterdir())
