from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.position import Key, order_key
from schemas.table import declare
from state.values.chunks import Chunk, KeyRange, TransactionSnapshot, lsn_from_text, lsn_to_text, widened
from state.values.reading import Reading, TableRead
from tests.kit.values import KEY_TYPES, values_of

_TABLE = declare(
    {
        "name": "t",
        "columns": {f"k{number}": str(kind) for number, kind in enumerate(KEY_TYPES)},
        "primary_key": [f"k{number}" for number in range(len(KEY_TYPES))],
    }
)
_KEYS = st.tuples(*(values_of(column.type) for column in _TABLE.key_columns))
_LSNS = st.integers(0, 2**64 - 1)


@st.composite
def snapshots(draw: st.DrawFn) -> TransactionSnapshot:
    xmin = draw(st.integers(3, 2**62))
    xmax = xmin + draw(st.integers(0, 40))
    running = draw(st.sets(st.integers(xmin, xmax - 1))) if xmax > xmin else set[int]()
    return TransactionSnapshot(xmin, xmax, tuple(sorted(running)))


@st.composite
def ranges(draw: st.DrawFn) -> KeyRange:
    found = draw(st.lists(_KEYS, min_size=2, max_size=2, unique_by=order_key))
    after, upto = sorted(found, key=order_key)
    return KeyRange(draw(st.sampled_from([None, after])), draw(st.sampled_from([None, upto])))


@given(snapshots(), st.integers(-45, 45))
def test_a_snapshot_sees_what_was_over(snapshot: TransactionSnapshot, distance: int) -> None:
    transaction = snapshot.xmin + distance
    over = set(range(snapshot.xmin - 45, snapshot.xmax)) - set(snapshot.running)
    assert snapshot.sees(transaction) == (transaction in over)


@given(snapshots())
def test_a_snapshot_has_the_text_of_postgresql(snapshot: TransactionSnapshot) -> None:
    assert TransactionSnapshot.from_text(snapshot.to_text()) == snapshot


def test_texts_of_postgresql_are_read() -> None:
    assert TransactionSnapshot.from_text("10:20:10,14,15") == TransactionSnapshot(10, 20, (10, 14, 15))
    assert TransactionSnapshot.from_text("795:795:") == TransactionSnapshot(795, 795)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10:20",
        "10:9:",
        "0:5:",
        "10:20:9",
        "10:20:20",
        "10:20:12,11",
        "10:20:11,11",
        "10:20:11,",
        "1 :2:",
        "-1:2:",
    ],
)
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="snapshot"):
        TransactionSnapshot.from_text(text)


@given(snapshots(), st.integers(-(2**31) + 1, 2**31 - 1), st.booleans())
def test_the_lower_half_of_a_number_is_widened_near_a_snapshot(
    snapshot: TransactionSnapshot, distance: int, signed: bool
) -> None:
    transaction = max(3, snapshot.xmax + distance)
    lower = transaction % 2**32
    given = lower - 2**32 if signed and lower >= 2**31 else lower
    assert widened(given, snapshot) == transaction
    assert widened(transaction, snapshot) == transaction


def test_a_number_is_widened_over_the_end_of_an_epoch() -> None:
    begun = TransactionSnapshot(2**32 + 5, 2**32 + 8)
    assert widened(2**32 - 1, begun) == 2**32 - 1
    assert widened(6, begun) == 2**32 + 6
    assert widened(6, TransactionSnapshot(2**32 - 9, 2**32 - 2)) == 2**32 + 6
    assert widened(2**32 - 1, TransactionSnapshot(5, 8)) == 2**32 - 1, (
        "there is no number before the first epoch"
    )


@given(ranges(), _KEYS)
def test_a_range_holds_its_upper_key_and_not_its_lower_one(keys: KeyRange, other: Key) -> None:
    assert keys.after is None or not keys.holds(keys.after)
    assert keys.upto is None or keys.holds(keys.upto)
    is_above = keys.after is None or order_key(keys.after) < order_key(other)
    assert keys.holds(other) == (is_above and (keys.upto is None or order_key(other) <= order_key(keys.upto)))


@pytest.mark.parametrize(("after", "upto"), [((2,), (2,)), ((3,), (2,))])
def test_a_range_without_keys_is_refused(after: Key, upto: Key) -> None:
    with pytest.raises(ValueError, match="ends where it begins"):
        KeyRange(after, upto)


@given(st.builds(Chunk, ranges(), snapshots(), _LSNS, st.integers(0, 2**40)))
def test_a_chunk_comes_back_from_json(chunk: Chunk) -> None:
    raw: dict[str, Any] = json.loads(json.dumps(chunk.to_dict()))
    assert Chunk.from_dict(raw, _TABLE.key_columns) == chunk


@given(_LSNS)
def test_an_lsn_comes_back_from_text(lsn: int) -> None:
    assert lsn_from_text(lsn_to_text(lsn)) == lsn


def test_an_lsn_has_the_text_of_postgresql() -> None:
    assert lsn_to_text(0x16_B374D848) == "16/B374D848"
    assert lsn_from_text("0/15D0") == 0x15D0
    for text in ("", "16", "16/", "/1", "1/2/3", "1/123456789"):
        with pytest.raises(ValueError, match=r"pg_lsn|base 16"):
            lsn_from_text(text)


def test_a_plan_names_the_files_of_each_chunk() -> None:
    read = TableRead.begin(TransactionSnapshot(3, 3)).read(Chunk(KeyRange(), TransactionSnapshot(3, 4), 1, 5))
    reading = Reading(read, (("a", "b"),), waiting=7, due=1)
    assert reading.due_files == ("a", "b")
    assert Reading.from_dict(json.loads(json.dumps(reading.to_dict())), _TABLE.key_columns) == reading
    for files, due in [((), 0), ((("a",), ("b",)), 0), ((("a",),), 2), ((("a",),), -1)]:
        with pytest.raises(ValueError, match="do not fit"):
            Reading(read, files, 7, due)
