"""Keys that go on in another partition where some were added: their order, in lanes and in the checker alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec.logs import MYSQL, POSTGRESQL, LogId, LogPosition
from schemas.errors import Code
from schemas.records import Op
from state.columns import OFFSET, PARTITION
from streaming.lane.changes import moved_in_order as in_lanes
from streaming.reading.entries import TopicEntry
from streaming.reading.records.logs import LogName, PlaceInLog
from streaming.source.decoded import POSITION, TIME, Changes
from streaming.verify.history import Held, PartitionHistory
from streaming.verify.records.order import moved_in_order
from tests.kit.encoded_histories import ListSource
from tests.kit.log_positions import position_column
from tests.unit.verify.test_upstream import NEW, OLD, barrier, change, insert, judge

LOGS = {
    "one": (LogId(POSTGRESQL, "a", "a"), LogName(POSTGRESQL, "a", "a")),
    "other": (LogId(POSTGRESQL, "b", "b"), LogName(POSTGRESQL, "b", "b")),
    "gtids": (LogId(MYSQL, "a", None, "uuid"), LogName(MYSQL, "a", None, "uuid")),
}
NUMBERS = st.integers(0, 2)
PLACES = st.one_of(st.none(), st.tuples(st.sampled_from(sorted(LOGS)), NUMBERS, NUMBERS))
RECORDS = st.lists(st.tuples(st.integers(0, 2), NUMBERS, NUMBERS, st.integers(0, 3), PLACES), max_size=14)
Drawn = tuple[int, int, int, int, tuple[str, int, int] | None]


def position_of(place: tuple[str, int, int] | None) -> tuple[int, ...]:
    assert place is not None
    return (place[1], 1, place[2], 0) if place[0] == "gtids" else place[1:]


def entries_of(drawn: list[Drawn]) -> list[Held]:
    """Records as the checker has them, each at its number for an offset."""
    topics = [PartitionHistory("up", number, ListSource([])) for number in range(3)]
    return [
        (
            topics[partition],
            TopicEntry(
                offset,
                b"%d" % key,
                b"",
                time_ms=time_ms,
                place=None if place is None else PlaceInLog(LOGS[place[0]][1], position_of(place)),
            ),
        )
        for offset, (_, partition, key, time_ms, place) in enumerate(drawn)
    ]


def changes_of(drawn: list[Drawn]) -> Changes:
    """Records as lanes have them."""
    count = len(drawn)
    positions = [
        None if each[4] is None else LogPosition(LOGS[each[4][0]][0], position_of(each[4])) for each in drawn
    ]
    rows: dict[str, Any] = {
        PARTITION: pa.array([each[1] for each in drawn], pa.int32()),
        OFFSET: pa.array(range(count), pa.int64()),
        TIME: pa.array([each[3] for each in drawn], pa.int64()),
        POSITION: position_column(positions),
    }
    numbers = np.array([each[0] for each in drawn], dtype=np.int64)
    keys = pa.array([each[2] for each in drawn], pa.int64())
    ops = np.full(count, Op.INSERT, np.int8)
    return Changes(numbers, np.zeros(count, np.int32), ops, (), (keys,), (keys,), pa.table(rows))


@given(RECORDS, st.integers(0, 2))
def test_both_orders_of_a_keys_partitions_are_one(records: list[Drawn], since: int) -> None:
    drawn = sorted(records, key=lambda each: each[:2])
    changes = changes_of(drawn)
    keys = pa.array([b"%d" % each[2] for each in drawn], pa.binary())
    found = in_lanes(changes, since, keys).offsets.tolist()
    held, wanted = entries_of(drawn), list[int]()
    for interval in range(3):
        own = [each for each, (number, *_) in zip(held, drawn, strict=True) if number == interval]
        wanted += [entry.offset for _, entry in (moved_in_order(own) if interval >= since else own)]
    assert found == wanted
    for partition in range(3):  # each keeps its order for a key
        for key in range(3):
            own_key = [at for at in found if drawn[at][1:3] == (partition, key)]
            assert own_key == sorted(own_key)


@pytest.mark.parametrize(
    ("first", "second", "is_turned"),
    [
        ((0, None), (0, None), False),  # nothing tells: by the partition
        ((5, None), (4, None), True),
        ((4, ("one", 2, 0)), (5, ("one", 1, 0)), True),  # by the position, whatever the times
        ((4, ("one", 1, 0)), (3, ("one", 2, 0)), False),
        ((4, ("one", 1, 0)), (3, ("one", 1, 0)), True),  # equal positions do not tell
        ((4, ("one", 1, 0)), (3, ("other", 2, 0)), True),
        ((4, ("gtids", 1, 1)), (5, ("gtids", 2, 0)), False),  # neither is lower: by the time
    ],
)
def test_of_two_partitions_the_lower_position_goes_first_else_the_lower_time(
    first: tuple[int, Any], second: tuple[int, Any], is_turned: bool
) -> None:
    drawn: list[Drawn] = [(0, 0, 7, *first), (0, 1, 7, *second)]
    offsets = [entry.offset for _, entry in moved_in_order(entries_of(drawn))]
    assert offsets == ([1, 0] if is_turned else [0, 1])
    keys = pa.array([b"7", b"7"], pa.binary())
    assert in_lanes(changes_of(drawn), 0, keys).offsets.tolist() == offsets


def test_a_key_goes_on_in_another_partition_once_for_each_barrier_that_tells_of_some() -> None:
    there, back = change(Op.UPDATE, OLD, NEW), change(Op.UPDATE, NEW, OLD)
    first = [insert(OLD), barrier(9, 0), barrier(20, 9, 2), barrier(30, 20, 2)]
    assert judge(first, [there, barrier(20, 9, 2), back, barrier(30, 20, 2)]).clean
    again = [insert(OLD), barrier(9, 0), barrier(20, 9, 2), back, barrier(30, 20, 2)]
    report = judge(again, [there, barrier(20, 9, 2), barrier(30, 20, 2)])
    assert report.counts == {f"upstream.{Code.KEY_IN_TWO_PARTITIONS}": 1}
