from __future__ import annotations

from pathlib import Path

from tests.bench.report.line import Line, by_size, cells, course, spread, summarised
from tests.bench.report.results import read_results, write_results


def test_a_summary_has_the_median_the_spread_and_the_median_ratio() -> None:
    runs = [
        Line("rate", 100, "rows/s", "pass-through", 200),
        Line("rate", 300, "rows/s", "pass-through", 100, course=((0.0, 1.0),)),
        Line("rate", 200, "rows/s", "pass-through", 200),
    ]
    (summary,) = summarised(runs)
    assert (summary.value, summary.values) == (200, (100, 300, 200))
    assert spread(summary) == "100 to 300"
    assert (summary.compared, summary.ratio) == (200, 1.0)


def test_lines_of_a_larger_table_stand_against_those_of_the_smallest() -> None:
    small = [Line("1 M rows", 100, "rows/s", "pass-through", 50), Line("findings", 0, "")]
    large = [Line("10 M rows", 90, "rows/s", "pass-through", 60), Line("findings", 0, "")]
    (line,) = by_size(small, large, 1_000_000)
    assert (line.what, line.value, line.compared_with) == ("10 M rows, by size", 90, "1,000,000 rows")
    assert line.ratio == 0.9


def test_a_line_that_the_smallest_size_does_not_have_is_left_out() -> None:
    small = [Line("build, 1,000 rows", 5, "rows/s"), Line("build, 1,000 rows: memory", 7, "MiB")]
    large = [
        Line("build, 4,000 rows", 10, "rows/s"),
        Line("build, 4,000 rows, behind the first part", 30, "rows/s"),
        Line("build, 4,000 rows: memory", 8, "MiB"),
    ]
    assert [(each.what, each.ratio) for each in by_size(small, large, 1_000)] == [
        ("build, 4,000 rows, by size", 2),
        ("build, 4,000 rows: memory, by size", 8 / 7),
    ]


def test_percentiles_stand_each_against_its_own() -> None:
    small = [Line("1,000 rows, budget 2s: p50", 10, "ms"), Line("1,000 rows, budget 2s: p99", 20, "ms")]
    large = [Line("4,000 rows, budget 2s: p50", 20, "ms"), Line("4,000 rows, budget 2s: p99", 40, "ms")]
    assert [each.ratio for each in by_size(small, large, 1_000)] == [2, 2]


def test_nothing_to_compare_with_is_no_ratio() -> None:
    assert Line("a", 1, "ms").ratio is None
    assert Line("a", 1, "ms", "b", 0).ratio is None
    (summary,) = summarised([Line("a", 1, "ms")])
    assert summary.ratio is None


def test_a_value_of_less_than_ten_has_two_places_and_a_count_none() -> None:
    (slices, findings) = summarised([Line("slices", 2.1558, "µs", "before", 1.4678), Line("findings", 0, "")])
    assert cells(slices)[1:] == ["2.16 µs", "1.47 of before 1.47"]
    assert cells(findings)[1] == "0"


def test_a_course_is_the_median_of_each_step() -> None:
    values = [(1_000.0, 1.0), (1_001.0, 3.0), (1_009.9, 9.0), (1_010.0, 4.0), (1_035.0, 5.0)]
    assert course(values, 10.0) == ((0.0, 3.0), (10.0, 4.0), (30.0, 5.0))
    assert course(values, 10.0, max) == ((0.0, 9.0), (10.0, 4.0), (30.0, 5.0))
    assert course([], 10.0) == ()


def test_a_result_file_gives_back_what_was_written(tmp_path: Path) -> None:
    lines = summarised(
        [
            Line("rate", 100, "rows/s", "pass-through", 200, course=((0.0, 1.0), (15.0, 2.5))),
            Line("findings", 0, ""),
        ]
    )
    write_results(tmp_path / "new", "snapshot", lines)
    assert read_results(tmp_path / "new")["snapshot"].lines == lines
