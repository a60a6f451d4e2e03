from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.report.goals import Goal, goals_table
from tests.bench.report.line import CPU, Line, Summary, summarised
from tests.bench.report.page import table, with_tables
from tests.bench.report.plots import draw, draw_cost
from tests.bench.report.results import Result, read_results, write_results

RATE = "10 changes/s: rate, last fifth"
COURSE = ((0.0, 1.0), (15.0, 2.0))
LINES = summarised(
    [
        Line(RATE, 1_234, "rows/s", "pass-through", 1_000, COURSE),
        Line(RATE, 1_000, "rows/s", "pass-through", 1_000, COURSE),
        Line("findings", 0, ""),
    ]
)
SIZES = summarised(
    [
        Line(f"snapshot of {rows:,} rows, exactly once{aspect}", rate, "rows/s", against, 2 * rate)
        for rows, rate in ((1_000_000, 100.0), (10_000_000, 200.0))
        for aspect, against in (("", "pass-through"), (", of the limit", "librdkafka alone"))
    ]
)
GOALS = summarised(
    [
        Line("10 changes/s: batch, median", 104, "ms", "target", 150),
        Line("10 changes/s: CPU", 0.25, "cores", "target", 0.15),
        Line("replica", 80_000, "changes/s", "change", 100_000),
    ]
)


def test_a_table_has_a_row_for_each_line() -> None:
    _, _, rate, findings = table(LINES).splitlines()
    assert rate == f"| {RATE} | 1,117 rows/s | 1.12 of pass-through 1,000 |"
    assert findings == "| findings | 0 |  |"


def test_tables_are_replaced_and_the_words_around_them_stay(tmp_path: Path) -> None:
    write_results(tmp_path, "wide", LINES)
    results = read_results(tmp_path)
    page = "before\n<!-- goals -->\n<!-- end -->\n<!-- bench wide -->\nold\n<!-- end -->\nafter\n"
    filled = with_tables(page, results)
    assert filled.startswith("before\n<!-- goals -->\n| | measured | goal | case |")
    assert filled.endswith(f"<!-- bench wide -->\n{table(LINES)}<!-- end -->\nafter\n")
    assert with_tables(filled, results) == filled


def test_a_table_may_have_some_lines_of_a_case(tmp_path: Path) -> None:
    write_results(tmp_path, "wide", LINES)
    filled = with_tables("<!-- bench wide *rate* -->\n<!-- end -->\n", read_results(tmp_path))
    assert RATE in filled
    assert "findings" not in filled


@pytest.mark.parametrize(
    ("goal", "row"),
    [
        (Goal("a", "a batch", "*batch*"), "| a batch | 104 ms | at most 150 | `a` |"),
        (Goal("a", "idle", "*CPU"), "| idle | 0.25 cores | **missed**: at most 0.15 | `a` |"),
        (
            Goal("a", "build", "replica", at_least=True, ratio=0.7),
            "| build | 0.8 of change | at least 0.7 | `a` |",
        ),
        (
            Goal("a", "build", "replica", at_least=True, ratio=0.9),
            "| build | 0.8 of change | **missed**: at least 0.9 | `a` |",
        ),
    ],
)
def test_a_goal_shows_what_was_measured_and_whether_it_is_met(goal: Goal, row: str) -> None:
    results = {"a": Result("2026-11-27", GOALS)}
    assert goals_table(results, [goal]).splitlines()[2:] == [row]


def test_a_goal_of_several_lines_or_of_one_without_a_ratio_is_an_error() -> None:
    lines = [*GOALS, *summarised([Line("alone", 1, "ms")])]
    for goal in (Goal("a", "what", "*"), Goal("a", "what", "alone", ratio=2)):
        with pytest.raises(LookupError):
            goal.row(Result("2026-11-27", lines))


@pytest.mark.parametrize("results", [{}, {"a": Result("2026-11-27", GOALS)}], ids=["no run", "an older run"])
def test_a_goal_that_was_not_measured_says_so(results: dict[str, Result]) -> None:
    row = goals_table(results, [Goal("a", "what", "nothing")]).splitlines()[2]
    assert row == "| what | not measured |  | `a` |"


@pytest.mark.parametrize(
    ("lines", "label"), [(LINES, "rate"), (SIZES, "librdkafka alone")], ids=["courses", "sizes"]
)
def test_a_picture_is_the_same_file_each_time(lines: list[Summary], label: str, tmp_path: Path) -> None:
    first, second = (tmp_path / folder / "bench.svg" for folder in ("a", "b"))
    for file in (first, second):
        file.parent.mkdir()
        draw(lines, file)
    assert first.read_bytes() == second.read_bytes()
    assert f">{label}</text>" in first.read_text(encoding="utf-8")


def test_there_is_no_picture_of_what_has_neither_a_course_nor_sizes(tmp_path: Path) -> None:
    draw(GOALS, tmp_path / "none.svg")
    draw_cost({"a": GOALS}, tmp_path / "none.svg")
    assert not list(tmp_path.iterdir())


def test_the_picture_of_what_it_costs_has_a_bar_for_each_case_that_measured_it(tmp_path: Path) -> None:
    cost = {
        "quiet": summarised([Line(f"no changes: {CPU}", 0.05, "cores")]),
        "steady": summarised([Line(f"500 changes/s: {CPU}", 0.5, "cores")]),
    }
    draw_cost(cost, tmp_path / "cost.svg")
    picture = (tmp_path / "cost.svg").read_text(encoding="utf-8")
    for word in ("no changes", "500 changes/s", "3", "30"):
        assert f">{word}</text>" in picture
