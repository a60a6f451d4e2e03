from __future__ import annotations

from pathlib import Path

from streaming.bench.line import Line, summarised
from streaming.bench.page import draw, table, with_tables
from streaming.bench.results import write_results

LINES = summarised(
    [
        Line("10 changes/s: rate", 1_234, "rows/s", "pass-through", 1_000, ((0.0, 1.0), (15.0, 2.0))),
        Line("10 changes/s: rate", 1_000, "rows/s", "pass-through", 1_000, ((0.0, 1.0), (15.0, 2.0))),
        Line("findings", 0, ""),
    ]
)


def test_a_table_has_a_row_for_each_line() -> None:
    _, _, rate, findings = table(LINES).splitlines()
    assert rate == "| 10 changes/s: rate | 1,117 | rows/s | 1,000 to 1,234 | pass-through | 1,000 | 1.12 |"
    assert findings == "| findings | 0 |  |  |  |  |  |"


def test_tables_are_replaced_and_the_words_around_them_stay(tmp_path: Path) -> None:
    write_results(tmp_path, "snapshot", LINES)
    page = "before\n<!-- bench snapshot -->\nold\n<!-- end -->\nafter\n"
    filled = with_tables(page, tmp_path)
    assert filled == f"before\n<!-- bench snapshot -->\n{table(LINES)}<!-- end -->\nafter\n"
    assert with_tables(filled, tmp_path) == filled


def test_a_plot_is_the_same_file_each_time_and_none_without_a_course(tmp_path: Path) -> None:
    first, second, none = (tmp_path / folder / "bench.svg" for folder in ("a", "b", "c"))
    for file in (first, second, none):
        file.parent.mkdir()
    draw(LINES, first)
    draw(LINES, second)
    assert first.read_bytes() == second.read_bytes()
    assert ">rate</text>" in first.read_text(encoding="utf-8")
    draw(LINES[1:], none)
    assert not none.exists()
