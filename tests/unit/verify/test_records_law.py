"""The law of jobs that read the upstream: what `verify` says of an output that keeps it, and of one that does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from schemas.records import Change, Op, Row, VnodeProgress
from streaming.verify.checker import Checker
from streaming.verify.findings import Report, Rule
from streaming.verify.history import TopicEntry
from streaming.verify.records.rows import OutputView
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.encoded_histories import barrier, numbered, of_changes
from tests.kit.tables import table

TABLE = table({"id": "bigint", "n": "int"}, vnode_count=2)
CHANGES, KEYS = ChangeCodec(TABLE.columns), KeyCodec(TABLE.key_columns)


def change(before: Row | None, after: Row | None) -> TopicEntry:
    op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
    key = (before or after or ())[:1]
    return TopicEntry(0, KEYS.encode(key), CHANGES.encode(Change(op, before, after)))


def at(offset: int, rows: int) -> VnodeProgress:
    return VnodeProgress(0, f"[{offset}]", False, rows)


A, B, C = change(None, (1, 10)), change(None, (2, 20)), change((1, 10), (1, 11))
D, E = change((2, 20), None), change((1, 11), (1, 12))
UPSTREAM = [A, B, barrier(1), C, barrier(2), D, barrier(3), E, barrier(4)]
"""At offsets 0, 1, 3, 5, 7: barriers take some too."""
DONE = VnodeProgress(0, "[4]", True, 3)
GOOD = [
    barrier(1),
    A,
    barrier(2, at(1, 1)),
    B,
    C,
    barrier(3, at(4, 3)),
    D,
    E,
    barrier(4, VnodeProgress(0, "[4]", True, 4)),
]


def judge(output: Sequence[TopicEntry], *, complete: bool = True, from_now: bool = False) -> Report:
    checker = Checker(
        TABLE,
        OutputView(TABLE),
        ("up", of_changes(TABLE, *numbered(UPSTREAM))),
        ("out", of_changes(TABLE, *numbered(output))),
        reads_upstream=True,
        from_now=from_now,
    )
    return checker.run(require_complete=complete)


def test_an_output_that_keeps_it_is_clean() -> None:
    report = judge(GOOD)
    assert report.clean, report
    assert (report.parts, report.vnode_count, report.vnodes_finished, report.snapshot_rows) == (
        "partitions",
        1,
        1,
        4,
    )


@pytest.mark.parametrize(
    ("broken", "rules"),
    [
        ([*GOOD[:3], *GOOD[4:]], {Rule.LOST}),
        ([*GOOD[:4], C, *GOOD[4:]], {Rule.EXTRA}),
        ([*GOOD[:3], C, B, *GOOD[5:]], {Rule.REORDERED}),
        ([*GOOD[:2], B, *GOOD[2:]], {Rule.BEYOND_POSITION}),
        ([*GOOD[:2], barrier(2, at(1, 2)), *GOOD[3:]], {Rule.ROW_COUNT_WRONG}),
        ([*GOOD[:2], barrier(2, at(2, 2)), *GOOD[3:]], {Rule.LOST, Rule.EXTRA}),
        ([*GOOD[:2], barrier(2, VnodeProgress(0, '["1"]', False, 1)), *GOOD[3:]], {Rule.PROGRESS_INVALID}),
        ([*GOOD[:5], barrier(3, at(0, 3)), *GOOD[6:]], {Rule.POSITION_FELL}),
        (GOOD[:6], {Rule.INCOMPLETE}),
        ([*GOOD[:1], change(None, (1, 99)), *GOOD[2:]], {Rule.LOST, Rule.EXTRA}),
    ],
    ids=[
        "lost",
        "doubled",
        "other order",
        "too early",
        "miscounted",
        "position too high",
        "other kind",
        "fell",
        "open",
        "changed",
    ],
)
def test_one_that_does_not_is_found(broken: list[TopicEntry], rules: set[Rule]) -> None:
    counted = {name.split(".")[1] for name in judge(broken).counts}
    assert rules <= counted


def test_the_order_of_all_keys_counts() -> None:
    """In an output of a table records of different keys may change places."""
    other = [*GOOD[:3], C, B, *GOOD[5:]]
    assert not judge(other).clean


NOW = [barrier(2, VnodeProgress(0, None, True, 0)), D, barrier(3), E, barrier(4)]


@pytest.mark.parametrize(
    ("output", "rules"),
    [
        (NOW, set()),
        ([NOW[0], C, *NOW[1:]], {Rule.EXTRA}),
        ([NOW[0], *NOW[2:]], {Rule.LOST}),
        ([barrier(2), *NOW[1:]], {Rule.PROGRESS_INVALID}),
    ],
)
def test_a_job_that_begins_now_is_sent_the_records_behind_its_start(
    output: list[TopicEntry], rules: set[Rule]
) -> None:
    assert {finding.rule for finding in judge(output, complete=False, from_now=True).findings} >= rules
    assert bool(judge(output, complete=False, from_now=True).findings) == bool(rules)
