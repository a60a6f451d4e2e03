"""The law of rows without identity: what is lost, doubled, or in another order or with another key, is found."""

from __future__ import annotations

import pytest

from schemas.formats.append import AppendFormat, AppendOutput
from schemas.records import VnodeProgress
from schemas.table import declare
from streaming.reading.records.forms import RecordForm
from streaming.verify.checker import Checker
from streaming.verify.findings import Report, Rule
from streaming.verify.history import TopicEntry
from streaming.verify.records.canonical import canonical
from streaming.verify.records.rows import OutputView
from tests.kit.encoded_histories import barrier, numbered

TABLE = declare({"name": "t", "columns": {"id": "bigint", "n": "int"}}, has_key=False)
OUTPUT = RecordForm.of(AppendOutput())


def row(key: bytes | None, id_: int, n: int) -> TopicEntry:
    """A row as an output has it; an upstream may as well."""
    return TopicEntry(0, key, b'{"id":%d,"n":%d}' % (id_, n))


A, B, NULL, KEYED = row(None, 1, 10), row(None, 2, 20), row(None, 1, 10), row(b"k", 1, 10)
UPSTREAM = [A, B, barrier(1), NULL, TopicEntry(0, b"k", None), KEYED, barrier(2), A, barrier(3)]
GOOD = [
    barrier(1),
    A,
    barrier(2, VnodeProgress(0, "[1]", False, 1)),
    B,
    NULL,
    KEYED,
    A,
    barrier(3, VnodeProgress(0, "[7]", True, 4)),
]


def judge(output: list[TopicEntry], upstream: list[TopicEntry] = UPSTREAM) -> Report:
    checker = Checker(
        TABLE,
        OutputView(TABLE, rows_before=OUTPUT.rows_before),
        ("up", canonical(numbered(upstream), RecordForm.of(AppendFormat()), TABLE.columns, ())),
        ("out", canonical(numbered(output), OUTPUT, TABLE.columns, ())),
        reads_upstream=True,
    )
    return checker.run(require_complete=True)


def test_an_output_that_keeps_it_is_clean_and_nulls_are_no_rows() -> None:
    report = judge(GOOD)
    assert report.clean, report
    assert (report.snapshot_rows, report.vnodes_finished) == (4, 1)


@pytest.mark.parametrize(
    ("broken", "rules"),
    [
        ([*GOOD[:4], *GOOD[5:]], {Rule.LOST}),
        ([*GOOD[:4], NULL, *GOOD[4:]], {Rule.EXTRA}),
        ([*GOOD[:3], NULL, B, *GOOD[5:]], {Rule.REORDERED}),
        ([*GOOD[:4], KEYED, NULL, *GOOD[6:]], {Rule.REORDERED}),
        ([*GOOD[:4], NULL._replace(key=b""), *GOOD[5:]], {Rule.LOST, Rule.EXTRA}),
        ([*GOOD[:4], NULL._replace(value=None), *GOOD[5:]], {Rule.LOST, Rule.EXTRA}),
        ([*GOOD[:4], NULL._replace(value=b'{"n":10,"id":1}'), *GOOD[5:]], {Rule.LOST, Rule.EXTRA}),
    ],
    ids=["lost", "doubled", "swapped", "keys swapped", "another key", "a null", "another form"],
)
def test_one_that_does_not_is_found(broken: list[TopicEntry], rules: set[Rule]) -> None:
    assert {name.split(".")[1] for name in judge(broken).counts} == rules
