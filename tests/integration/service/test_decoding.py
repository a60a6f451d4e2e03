"""What Spark makes of an upstream record, and what is said of one that is at fault, without a service around it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from schemas.avro.codec import MAX_BARRIER_BYTES, barrier_header, encode_barrier
from schemas.errors import Code, InputError
from schemas.records import Barrier, BarrierKind
from schemas.table import declare
from state.columns import OFFSET, PARTITION
from state.values.plan import AlignedBarrier, BatchPlan, ReplicaVersion
from streaming.kafka.clients import KafkaSettings
from streaming.lane.changes import Changes, order_changes
from streaming.lane.faults import Fault, find_faults
from streaming.source.decoded import check_decoded
from streaming.source.kafka import UpstreamSource
from tests.kit.faulty_records import BROKEN, BROKEN_KEYS, KEY, ROW, TABLE, insert, number, sized
from tests.kit.values import TYPES

RECORDS = (
    "partition int, offset long, key binary, value binary, headers array<struct<key string, value binary>>"
)

Decode = Callable[..., tuple[Changes, list[Fault]]]


@pytest.fixture(scope="module")
def decode(spark: SparkSession) -> Decode:
    """Records of partition 0, at offsets 0, 1, 2, …, through Spark into a single lane."""
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up", TABLE)

    def run(
        *values: bytes | None,
        keys: list[bytes | None] | None = None,
        headers: list[list[tuple[str, bytes]] | None] | None = None,
    ) -> tuple[Changes, list[Fault]]:
        columns = keys or [KEY] * len(values), values, headers or [None] * len(values)
        rows = [(0, offset, *row) for offset, row in enumerate(zip(*columns, strict=True))]
        found = source.lane_rows(spark.createDataFrame(rows, RECORDS), 1)
        table: pa.Table = found.toArrow().cast(to_arrow_schema(found.schema))
        changes = order_changes(table.to_batches(), table.schema, _plan(len(values)), TABLE)
        return changes, find_faults(changes, TABLE)

    return run


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


def test_a_table_with_columns_of_every_type_is_decoded_as_declared(spark: SparkSession) -> None:
    columns = {"id": "int"} | {f"c{number}": str(kind) for number, kind in enumerate(TYPES)}
    every = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up", every)
    found = source.lane_rows(spark.createDataFrame([], RECORDS), 1)
    check_decoded(to_arrow_schema(found.schema), every)


def test_records_may_be_asked_for_while_the_session_is_on_its_way(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's functions have no columns without one."""
    context = SparkContext._active_spark_context

    def awaited() -> SparkSession:
        monkeypatch.setattr(SparkContext, "_active_spark_context", context)
        return spark

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    source = UpstreamSource(awaited, KafkaSettings("unused"), "up", TABLE)
    found = source.raw_in_place((0, 0, 0), (5, 5, 5), 2)
    assert found.columns == ["partition", "offset", "key", "value", "marked"]


def test_spark_sorts_records_by_the_intervals_that_end_before_them(spark: SparkSession) -> None:
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up", TABLE)
    barrier = Barrier(1 << 16, 0, BarrierKind.INITIAL, 2, 0)
    barriers = [AlignedBarrier(barrier, ends) for ends in ((2, 0), (2, 1), (3, 3))]
    rows = [(number, offset, KEY, insert(), None) for number in (0, 1) for offset in (2, 1, 0)]
    found = source.lane_rows(spark.createDataFrame(rows, RECORDS), 1, in_order_of=barriers).toArrow()
    places = zip(*(found[name].to_pylist() for name in (PARTITION, OFFSET)), strict=True)
    assert list(places) == [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)]


def test_a_mark_with_a_key_or_two_marks_are_ambiguous_and_a_huge_barrier_is_not_fetched(
    spark: SparkSession,
) -> None:
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up", TABLE, frozenset({(1, 9)}))
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
        found = source.barriers(spark.createDataFrame([row], RECORDS))
        if code is None:
            [one] = found
            assert (one.partition, one.offset) == row[:2]
            continue
        with pytest.raises(InputError) as caught:
            list(found)
        assert (caught.value.code, caught.value.exit_status) == (code, 4)
        assert caught.value.where == f"up-{row[0]}@{row[1]}"
