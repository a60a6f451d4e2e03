"""Lines and latencies of a benchmark, and the lines that a service of it logs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from streaming.demo.latency import Latencies, percentile
from tests.bench.latencies import course_ms, during
from tests.bench.report.line import Line, by_size, cells, course, spread, summarised
from tests.bench.report.results import read_results, write_results
from tests.bench.rig import ServiceRun


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


FIVE = Latencies(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([10.0, 20.0, 30.0, 40.0, 50.0]))


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([], 0.99) == 0.0
    assert [percentile([3, 1, 2, 4], share) for share in (0.25, 0.5, 0.51, 0.99, 1.0)] == [1, 2, 3, 4, 4]
    assert FIVE.percentile_ms(0.5) == 30.0


def test_latencies_of_what_was_produced_between_two_instants() -> None:
    assert FIVE.between(2.0, 4.0).took_ms.tolist() == [20.0, 30.0, 40.0]
    assert len(FIVE.between(6.0, 7.0)) == 0


def test_latencies_inside_and_outside_of_spans() -> None:
    spans = [(0.0, 1.0), (3.5, 9.0), (4.0, 4.5)]
    assert during(FIVE, spans).took_ms.tolist() == [10.0, 40.0, 50.0]
    assert during(FIVE, spans, outside=True).took_ms.tolist() == [20.0, 30.0]
    assert len(during(FIVE, [])) == 0
    assert len(during(FIVE, [], outside=True)) == 5


def test_a_course_has_the_percentile_of_each_second() -> None:
    mixed = Latencies(np.array([11.0, 10.2, 10.5, 12.9]), np.array([7.0, 10.0, 30.0, 9.0]))
    assert course_ms(mixed, 0.99) == ((0.0, 30.0), (2.0, 9.0))
    assert course_ms(mixed, 0.5) == ((0.0, 10.0), (2.0, 9.0))


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
