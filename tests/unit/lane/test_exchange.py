"""Records go through the exchange to the lanes that they are for, in order where that is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.formats.registry import DEFAULT
from streaming.source.exchange import (
    BLOCK,
    FIRST_OFFSET,
    INTERVAL,
    LANE_KEY,
    ORDER,
    PARTITION,
    Exchange,
    lane_keys,
    unpacked,
)
from streaming.source.records import RAW_SCHEMA, RawRecord, Records, Routes
from tests.kit.avro_codec import KeyCodec
from tests.kit.tables import table, vnode_of

TABLE = table(vnode_count=8)
KEYS = KeyCodec(TABLE.key_columns)
Packed = list[tuple[int, int, int, int, bytes]]


def packed(exchange: Exchange, *batches: Sequence[RawRecord]) -> Packed:
    """The blocks of records, as Spark gets them."""
    rows = exchange.packed(Records.of(batch).batch for batch in batches)
    names = LANE_KEY, INTERVAL, PARTITION, FIRST_OFFSET, BLOCK
    return [tuple(row[name] for name in names) for batch in rows for row in batch.to_pylist()]


def lane(blocks: Packed, number: int, lanes: int, *, in_order: bool = False) -> list[RawRecord]:
    """The records that come to a lane."""
    own = [block for block in blocks if block[0] == lane_keys(lanes)[number]]
    rows = sorted(own) if in_order else own
    batch = pa.record_batch({BLOCK: pa.array([row[-1] for row in rows], pa.binary())})
    return [tuple(row.values()) for records in unpacked([batch]) for row in records.batch.to_pylist()]


def record(partition: int, offset: int, *, marked: bool = False) -> RawRecord:
    key = None if marked else KEYS.encode((offset,))
    return partition, offset, key, b"value %d" % offset if offset % 3 else None, marked


@given(st.integers(0, 40), st.lists(st.integers(1, 40), max_size=3), st.integers(1, 5))
def test_each_record_comes_to_the_lane_of_its_key_as_it_is(count: int, cuts: list[int], lanes: int) -> None:
    records = [record(0, offset) for offset in range(count)]
    bounds = sorted({0, count, *(cut for cut in cuts if cut < count)})
    batches = [records[first:end] for first, end in pairwise(bounds)]
    blocks = packed(Exchange(DEFAULT, TABLE, Routes(lanes, 8)), *batches)
    for number in range(lanes):
        own = [each for each in records if vnode_of(TABLE, (each[1],)) * lanes // 8 == number]
        assert lane(blocks, number, lanes) == own


def test_records_come_in_order_of_interval_partition_and_offset_whatever_batches_they_were_in() -> None:
    ends = (3, 0), (3, 2), (9, 9)
    exchange = Exchange(DEFAULT, TABLE, Routes(1, 8), ends)
    first, second = ([record(partition, offset) for offset in range(9)] for partition in (0, 1))
    blocks = packed(exchange, second[:1], first[:5], second[1:], first[5:])
    places = [each[:2] for each in lane(blocks, 0, 1, in_order=True)]
    assert places == sorted(
        places, key=lambda place: (sum(end[place[0]] <= place[1] for end in ends), *place)
    )


def test_the_partitions_of_an_interval_go_on_side_by_side_by_time_where_keys_move() -> None:
    ends, times = ((2, 2), (9, 9)), {0: [5, 6, 10, 8, 9, 31], 1: [1, 2, 9, 11, 12, 40]}
    exchange = Exchange(DEFAULT, TABLE, Routes(1, 8), ends, moves_from=1)
    batches = [
        Records.of([(*record(number, at), times[number][at]) for at in rows], times=True).batch
        for number in (1, 0)
        for rows in (range(4), range(4, 6))
    ]
    # By Spark each partition is a task's.
    rows = [
        row
        for own in (batches[:2], batches[2:])
        for batch in exchange.packed(own)
        for row in batch.to_pylist()
    ]
    blocks = sorted(rows, key=lambda row: tuple(row[name] for name in ORDER))
    found = unpacked(
        [pa.record_batch({BLOCK: pa.array([row[BLOCK] for row in blocks], pa.binary())})], times=True
    )
    places = [(row["partition"], row["offset"]) for each in found for row in each.batch.to_pylist()]
    assert places[:4] == [(0, 0), (0, 1), (1, 0), (1, 1)]  # an interval in which they do not
    # The third of partition 0 is late: what is behind it in its partition can't go before it.
    assert places[4:] == [(1, 2), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (0, 5), (1, 5)]


@pytest.mark.parametrize("by_partition", [False, True])
def test_marks_and_keys_that_can_not_be_read_go_to_lane_0(by_partition: bool) -> None:
    broken = [(1, 5, key, b"x", False) for key in (None, b"", b"\x80", b"\x02\x00")]
    blocks = packed(
        Exchange(DEFAULT, TABLE, Routes(2, 8, 2 if by_partition else 0, (0, 0))),
        [record(1, 4, marked=True), *broken],
    )
    assert lane(blocks, 0, 2) == [record(1, 4, marked=True), *broken]
    assert lane(blocks, 1, 2) == []


def test_a_table_without_a_key_goes_by_its_partitions() -> None:
    rows = replace(TABLE, primary_key=(), distribution_key=())
    blocks = packed(Exchange(DEFAULT, rows, Routes(2, 4)), [(n, 7, b"\xff", b"x", False) for n in range(4)])
    assert [[each[0] for each in lane(blocks, number, 2)] for number in (0, 1)] == [[0, 1], [2, 3]]


def test_an_empty_batch_and_none_are_no_block() -> None:
    exchange = Exchange(DEFAULT, TABLE, Routes(2, 8))
    assert packed(exchange, []) == packed(exchange) == []
    assert list(unpacked([])) == []
    assert Records.of([]).batch.schema == RAW_SCHEMA
