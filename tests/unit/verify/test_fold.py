"""Folds of changes into rows: what fits, values as text, and the checker's list of unread keys."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pytest

from schemas.errors import Code, InputError
from schemas.records import Barrier, BarrierKind, Change, Op, VnodeProgress
from schemas.table import declare
from streaming.reading.entries import RowChange
from streaming.reading.topic import Record, TableFold, Tally, plain
from streaming.verify.findings import Findings
from streaming.verify.fold import UpstreamFold
from streaming.verify.history import PartitionHistory, TopicEntry
from streaming.verify.positions import Positions, Standing
from streaming.verify.records.keys import KeySpace
from tests.kit.avro_codec import KeyCodec
from tests.kit.encoded_histories import ListSource

TABLE = declare({"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"], "vnode_count": 2})
KEYS = KeyCodec(TABLE.key_columns)


def test_a_churn_of_unread_keys_leaves_the_live_ones_and_no_others() -> None:
    findings = Findings()
    space = KeySpace(TABLE, 1)
    fold = UpstreamFold(TABLE, space, Positions(space, findings), findings)
    partition = PartitionHistory("up", 0, ListSource([]))
    rng = random.Random(3)
    live: set[int] = set()
    for _ in range(200):
        for _ in range(50):
            number = rng.randrange(10**6) if not live or rng.random() < 0.5 else rng.choice(sorted(live))
            row = (number,)
            change = Change(Op.DELETE, row, None) if number in live else Change(Op.INSERT, None, row)
            live ^= {number}
            before, after = (
                None if each is None else KEYS.encode(each) for each in (change.before, change.after)
            )
            fold.apply(partition, TopicEntry(0, b"", b"", change=RowChange(KEYS.encode(row), before, after)))
        fold.settle()
        assert sum(map(len, fold._unread)) <= 2 * len(live) + 300
    middle = sorted(live)[len(live) // 2]
    below = {key for vnode in range(2) for key in fold.read(vnode, Standing(bound=(middle,)))}
    above = {key for vnode in range(2) for key in fold.read(vnode, Standing(finished=True))}
    assert below == {KEYS.encode((number,)) for number in live if number <= middle}
    assert above == {KEYS.encode((number,)) for number in live if number > middle}
    assert not any(fold._unread)
    assert not findings.kept


OLD, NEW = (1, "old"), (1, "new")


def fold(*changes: Change) -> TableFold:
    table = TableFold()
    for change in changes:
        table.apply((1,), change, "t-0@1")
    return table


def test_changes_add_up_to_the_rows_that_are_there() -> None:
    insert, update, delete = (
        Change(Op.INSERT, None, OLD),
        Change(Op.UPDATE, OLD, NEW),
        Change(Op.DELETE, NEW, None),
    )
    assert fold(insert).rows == {(1,): OLD}
    assert fold(insert, update).rows == {(1,): NEW}
    assert fold(insert, update, delete).rows == {}
    assert fold(insert, update, delete, insert).rows == {(1,): OLD}


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        (Code.INSERT_EXISTING_KEY, [Change(Op.INSERT, None, OLD), Change(Op.INSERT, None, OLD)]),
        (Code.DELETE_MISSING_KEY, [Change(Op.DELETE, OLD, None)]),
        (Code.DELETE_MISSING_KEY, [Change(Op.UPDATE, OLD, NEW)]),
        (Code.OLD_ROW_MISMATCH, [Change(Op.INSERT, None, OLD), Change(Op.UPDATE, NEW, OLD)]),
        (Code.OLD_ROW_MISMATCH, [Change(Op.INSERT, None, OLD), Change(Op.DELETE, NEW, None)]),
    ],
)
def test_a_change_that_does_not_fit_is_named_with_its_place(code: Code, changes: list[Change]) -> None:
    with pytest.raises(InputError) as caught:
        fold(*changes)
    assert (caught.value.code, caught.value.where) == (code, "t-0@1")


def test_a_row_with_nan_is_equal_to_itself() -> None:
    nan = (1, float("nan"))
    assert fold(Change(Op.INSERT, None, nan), Change(Op.DELETE, (1, float("nan")), None)).rows == {}


def test_a_tally_knows_which_vnodes_have_finished() -> None:
    progress = (VnodeProgress(3, "[1]", False, 1), VnodeProgress(5, None, True, 0))
    barrier = Barrier(2, 1, BarrierKind.CHECKPOINT, 1, 0, progress=progress)
    tally = Tally()
    tally.add(Record("t-0@0", 0, 2, None, barrier))
    tally.add(Record("t-0@1", 0, 2, (1,), Change(Op.INSERT, None, OLD)))
    assert tally.counts == {"barriers": 1, "inserts": 1}
    assert (tally.finished, tally.epochs) == ({5}, {0: 2})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1E+2"), "100"),
        (dt.date(2026, 1, 31), "2026-01-31"),
        (dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), "2026-01-31T12:00:00.000000Z"),
        (b"\x00\xff", "AP8="),
        (7, 7),
        (None, None),
    ],
)
def test_values_have_a_plain_form(value: object, text: object) -> None:
    assert plain(value) == text
