"""Records on their way to a lane through Spark's exchange, and what is said of invalid ones, without a service."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.avro.codec import MAX_BARRIER_BYTES, barrier_header, encode_barrier
from schemas.errors import Code, InputError
from schemas.formats.registry import DEFAULT
from schemas.records import Barrier, BarrierKind, Change, Op
from state.columns import OFFSET, PARTITION
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from streaming.kafka.clients import KafkaSettings
from streaming.lane.changes import order_changes
from streaming.lane.faults import Fault, find_faults
from streaming.source.decoded import Changes, decoded
from streaming.source.exchange import Exchange, lane_keys, unpacked
from streaming.source.kafka import UpstreamSource
from streaming.source.records import Routes
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.faulty_records import BROKEN, BROKEN_KEYS, KEY, ROW, TABLE, insert, number, sized
from tests.kit.tables import table, vnode_of

RECORDS = (
    "partition int, offset long, key binary, value binary, headers array<struct<key string, value binary>>"
)

Decode = Callable[..., tuple[Changes, list[Fault]]]


@pytest.fixture(scope="module")
def decode(spark: SparkSession) -> Decode:
    """Records of partition 0, at offsets 0, 1, 2, …, through Spark into a single lane."""
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up")

    def run(
        *values: bytes | None,
        keys: list[bytes | None] | None = None,
        headers: list[list[tuple[str, bytes]] | None] | None = None,
    ) -> tuple[Changes, list[Fault]]:
        columns = keys or [KEY] * len(values), values, headers or [None] * len(values)
        rows = [(0, offset, *row) for offset, row in enumerate(zip(*columns, strict=True))]
        [batch] = exchanged(
            source,
            spark.createDataFrame(rows, RECORDS),
            Exchange(DEFAULT, TABLE, Routes(1, TABLE.vnode_count)),
        )
        changes = order_changes([batch], batch.schema, _plan(len(values)), TABLE)
        return changes, find_faults(changes, TABLE)

    return run


def exchanged(source: UpstreamSource, records: DataFrame, exchange: Exchange) -> list[pa.RecordBatch]:
    """The records of a single lane, decoded."""
    blocks = source.exchanged(exchange, records).toArrow().to_batches()
    return [decoded(each, exchange.format, exchange.table) for each in unpacked(blocks)]


def _plan(count: int) -> BatchPlan:
    barrier = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (count,))
    return BatchPlan(None, (barrier,), (0,), ReplicaVersion(0, 0, 0), 1)


def test_each_way_to_be_no_change_has_its_code_and_its_place(decode: Decode) -> None:
    sound = insert()
    values = [value for broken, _ in BROKEN.values() for value in (sound, broken)]
    _, faults = decode(*values)
    assert {fault.offset: fault.code for fault in faults} == {
        2 * position + 1: code for position, (_, code) in enumerate(BROKEN.values())
    }
    assert all(fault.found and fault.expected for fault in faults)


def test_a_record_key_that_is_missing_or_broken_is_named(decode: Decode) -> None:
    _, faults = decode(*[insert()] * len(BROKEN_KEYS), keys=[key for key, _ in BROKEN_KEYS.values()])
    assert [fault.code for fault in faults] == [code for _, code in BROKEN_KEYS.values()]


def test_needless_bytes_of_numbers_and_decimals_are_legal(decode: Decode) -> None:
    long_number, long_decimal = b"\x8a\x00", sized((1).to_bytes(9, "big"))
    changes, faults = decode(insert(i=long_number), insert(d=long_decimal, w=sized((1).to_bytes(16, "big"))))
    assert not faults
    assert [column.to_pylist() for column in changes.after] == [[value, value] for value in ROW]


def test_a_null_of_a_schema_with_nullable_keys_reads_as_0_until_its_first_value_tells(decode: Decode) -> None:
    # [null, long]: null is the byte 0, which is also the number 0. 7 is 2, 14, which is the number 1 and more.
    null, seven = insert(id=b"\x00"), insert(id=b"\x02" + number(7))
    changes, faults = decode(null, seven, keys=[b"\x00", b"\x02" + number(7)])
    assert changes.after[0].to_pylist()[0] == 0
    assert [fault.offset for fault in faults] == [1]


def test_what_is_marked_as_a_barrier_is_no_change_whatever_its_value(decode: Decode) -> None:
    marked, other = [("trace", b"1"), ("barrier", b"1")], [("trace", b"1")]
    _, faults = decode(insert(), insert(), b"\xff", insert(), headers=[marked, other, marked, None])
    assert [(fault.offset, fault.code) for fault in faults] == [
        (0, Code.AMBIGUOUS_RECORD),
        (2, Code.AMBIGUOUS_RECORD),
    ]


def test_a_barriers_own_record_is_no_change_and_the_last_record_before_one_beside_the_data_is(
    decode: Decode,
) -> None:
    marked: list[list[tuple[str, bytes]] | None] = [None, [("barrier", b"1")]]
    own, faults = decode(insert(), b"\xff", keys=[KEY, None], headers=marked)
    assert (own.rows[OFFSET].to_pylist(), faults) == ([0], [])
    beside, faults = decode(insert(), insert())
    assert (beside.rows[OFFSET].to_pylist(), faults) == ([0, 1], [])


def test_records_may_be_asked_for_while_the_session_is_on_its_way(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's functions have no columns without one."""
    context = SparkContext._active_spark_context

    def awaited() -> SparkSession:
        monkeypatch.setattr(SparkContext, "_active_spark_context", context)
        return spark

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    source = UpstreamSource(awaited, KafkaSettings("unused"), "up")
    found, places = source.in_place((0, 0, 0), (5, 5, 5), 2)
    assert (found.columns, places) == (["partition", "offset", "key", "value", "marked"], [0, 1])


def test_spark_sorts_records_by_the_intervals_that_end_before_them(spark: SparkSession) -> None:
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up")
    ends = (2, 0), (2, 1), (3, 3)
    rows = [(number, offset, KEY, insert(), None) for number in (0, 1) for offset in (0, 1, 2)]
    records = spark.createDataFrame(rows, RECORDS).repartition(2, "partition").sortWithinPartitions("offset")
    found = pa.Table.from_batches(
        exchanged(source, records, Exchange(DEFAULT, TABLE, Routes(1, TABLE.vnode_count), ends))
    )
    places = zip(*(found[name].to_pylist() for name in (PARTITION, OFFSET)), strict=True)
    assert list(places) == [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)]


def test_a_lane_gets_records_in_order_from_many_batches_of_spark(spark: SparkSession) -> None:
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up")
    count = 25_000  # more than Spark hands on at a time
    records = spark.range(0, count, 1, 1).selectExpr(
        "0 as partition",
        "id as offset",
        "cast(null as binary) as key",
        "cast('x' as binary) as value",
        "cast(null as array<struct<key string, value binary>>) as headers",
    )
    ends = (3,), (3,), (19_999,), (count,)
    found = exchanged(source, records, Exchange(DEFAULT, TABLE, Routes(1, TABLE.vnode_count), ends))
    assert [offset for batch in found for offset in batch[OFFSET].to_pylist()] == list(range(count))


def test_a_mark_with_a_key_or_two_marks_are_ambiguous_and_a_huge_barrier_is_not_fetched(
    spark: SparkSession,
) -> None:
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up", frozenset({(1, 9)}))
    barrier = Barrier(1 << 16, 0, BarrierKind.INITIAL, 2, 0)
    mark = ("barrier", barrier_header(barrier))
    value, huge = encode_barrier(barrier), bytes(MAX_BARRIER_BYTES + 1)
    rows: list[tuple[tuple[object, ...], Code | None]] = [
        ((0, 7, None, value, [("other", b"1"), mark]), None),
        ((0, 8, KEY, value, [mark]), Code.AMBIGUOUS_RECORD),
        ((1, 7, None, value, [mark, mark]), Code.AMBIGUOUS_RECORD),
        ((1, 8, None, huge, [mark]), Code.AVRO_LIMIT),
        ((1, 9, KEY, huge, [mark]), None),  # named by an operator
    ]
    for row, code in rows:
        found = source.barriers_in(spark.createDataFrame([row], RECORDS))
        if code is None:
            [one] = found
            assert (one.partition, one.offset) == row[:2]
            continue
        with pytest.raises(InputError) as caught:
            list(found)
        assert (caught.value.code, caught.value.exit_status) == (code, 4)
        assert caught.value.where == f"up-{row[0]}@{row[1]}"


@pytest.mark.parametrize("lanes", [1, 2, 3, 64])
def test_a_lane_key_goes_to_its_lane(spark: SparkSession, lanes: int) -> None:
    salts = lane_keys(lanes)
    rows = spark.createDataFrame([(salt,) for salt in salts], "salt int")
    placed = rows.repartition(lanes, "salt").select("salt", F.spark_partition_id()).collect()
    assert {row[0]: row[1] for row in placed} == {salt: lane for lane, salt in enumerate(salts)}


def test_where_jobs_read_the_upstream_a_record_comes_to_the_lanes_of_its_vnode_and_its_partition(
    spark: SparkSession,
) -> None:
    table_, partitions, lanes = table({"id": "bigint"}, vnode_count=8), 4, 2
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up")
    changes, keys = ChangeCodec(table_.columns), KeyCodec(table_.key_columns)
    rows = {
        (number % partitions, number): (
            keys.encode((number,)),
            changes.encode(Change(Op.INSERT, None, (number,))),
        )
        for number in range(40)
    }
    early = [(*place, *record, None) for place, record in rows.items() if place[1] < 20]
    marked = (0, 100, None, b"-", [("barrier", b"1")])
    live = [(*place, *record, None) for place, record in rows.items() if place[1] >= 20]
    broken_key = (3, 101, b"\x80", b"?", None)
    broken = (3, 102, keys.encode((102,)), b"?", None)
    routes = Routes(lanes, table_.vnode_count, partitions, (20,) * partitions)
    blocks = source.exchanged(
        Exchange(DEFAULT, table_, routes),
        spark.createDataFrame([*live, marked, broken_key, broken], RECORDS),
        [spark.createDataFrame([*early, (*marked[:1], 5, *marked[2:])], RECORDS)],
    )
    placed = [
        (row["lane"], *place)
        for row in blocks.select("block", F.spark_partition_id().alias("lane")).collect()
        for records in unpacked([pa.record_batch({"block": [bytes(row["block"])]})])
        for place in zip(records.partitions.to_pylist(), records.offsets.to_pylist(), strict=True)
    ]
    assert len(placed) == len(set(placed)), "to each lane once"

    def lanes_of(partition: int, offset: int) -> set[int]:
        own = vnode_of(table_, (offset,)) * lanes // table_.vnode_count
        theirs = partition * lanes // partitions
        return {theirs} if offset < 20 else {own, theirs}

    wanted = {(lane, *place) for place in [*rows, (3, 102)] for lane in lanes_of(*place)}
    assert set(placed) == wanted | {(0, 0, 100), (0, 3, 101)}
