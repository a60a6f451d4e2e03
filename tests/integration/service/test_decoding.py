"""What Spark makes of an upstream record, and what is said of one that is at fault, without a service around it."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from schemas.codec import ChangeCodec, KeyCodec
from schemas.errors import Code
from schemas.records import Barrier, BarrierKind, Change, Op
from schemas.table import declare
from state.plan import AlignedBarrier, BatchPlan, ReplicaVersion
from streaming.lane.changes import Changes, order_changes
from streaming.lane.faults import Fault, find_faults
from streaming.runtime.kafka import KafkaSettings
from streaming.service.source import UpstreamSource

TABLE = declare(
    {
        "name": "t",
        "columns": {
            "id": "bigint",
            "i": "int",
            "d": "decimal(18,2)",
            "w": "decimal(38,2)",
            "s": "string",
            "b": "boolean",
            "at": "timestamp",
            "day": "date",
            "f": "double",
        },
        "primary_key": ["id"],
        "vnode_count": 4,
    }
)
CHANGES, KEYS = ChangeCodec(TABLE.columns), KeyCodec(TABLE.key_columns)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ROW = (1, 5, Decimal("0.01"), Decimal("0.01"), "x", True, EPOCH, dt.date(1970, 1, 1), 1.0)
Decode = Callable[..., tuple[Changes, list[Fault]]]


def number(value: int) -> bytes:
    """Avro's int and long: zigzag, seven bits a byte."""
    value = (value << 1) ^ (value >> 63)
    data = b""
    while value > 0x7F:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def sized(data: bytes) -> bytes:
    return number(len(data)) + data


CELLS = {
    "id": number(1),
    "i": number(5),
    "d": sized(b"\x01"),
    "w": sized(b"\x01"),
    "s": sized(b"x"),
    "b": b"\x01",
    "at": number(0),
    "day": number(0),
    "f": struct.pack("<d", 1.0),
}


def insert(*, op: int = 0, branch: bytes = b"\x02", **cells: bytes) -> bytes:
    """An INSERT of ROW, some of its parts as given."""
    id_, *others = {**CELLS, **cells}.values()
    return number(op) + b"\x00\x02" + id_ + b"".join(branch + cell for cell in others)


@pytest.fixture(scope="module")
def decode(spark: SparkSession) -> Decode:
    """Records of partition 0, at offsets 0, 1, 2, …, through Spark into a single lane."""
    source = UpstreamSource(spark, KafkaSettings("unused"), "up", TABLE)

    def run(*values: bytes | None, keys: list[bytes | None] | None = None) -> tuple[Changes, list[Fault]]:
        given = keys or [KEYS.encode((1,))] * len(values)
        rows = [
            (0, offset, key, value) for offset, (key, value) in enumerate(zip(given, values, strict=True))
        ]
        schema = "partition int, offset long, key binary, value binary"
        found = source.lane_rows(spark.createDataFrame(rows, schema), 1)
        table: pa.Table = found.toArrow().cast(to_arrow_schema(found.schema))
        changes = order_changes(table.to_batches(), table.schema, _plan(len(values)), TABLE)
        return changes, find_faults(changes, TABLE)

    return run


def _plan(count: int) -> BatchPlan:
    barrier = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (count,))
    return BatchPlan(None, (barrier,), (0,), ReplicaVersion(0, 0, 0), 1)


BROKEN: dict[str, tuple[bytes | None, Code]] = {
    "no value": (None, Code.TOMBSTONE_UNSUPPORTED),
    "an empty value": (b"", Code.EMPTY_RECORD),
    "cut short": (insert()[:-1], Code.AVRO_TRUNCATED),
    "one byte more": (insert() + b"\x00", Code.AVRO_TRAILING),
    "an op too high": (insert(op=3), Code.UNKNOWN_OP),
    "an op below 0": (insert(op=-1), Code.UNKNOWN_OP),
    "a union branch too high": (insert(branch=b"\x04"), Code.CHANGE_MALFORMED),
    "a union branch below 0": (insert(branch=b"\x01"), Code.CHANGE_MALFORMED),
    "an int of 33 bits": (insert(i=number(2**31)), Code.VALUE_OUT_OF_RANGE),
    "an int that keeps its length when cut": (insert(i=number(2**33 + 2**30)), Code.VALUE_OUT_OF_RANGE),
    "an int of 37 bits": (insert(i=number(2**36)), Code.VALUE_OUT_OF_RANGE),
    "a decimal of 19 digits": (insert(d=sized((10**18).to_bytes(9, "big"))), Code.VALUE_OUT_OF_RANGE),
    "a decimal of 65 bits": (insert(d=sized((2**64 + 5).to_bytes(9, "big"))), Code.VALUE_OUT_OF_RANGE),
    "a decimal of 39 digits": (insert(w=sized((10**38).to_bytes(17, "big"))), Code.VALUE_OUT_OF_RANGE),
    "a decimal without a byte": (insert(d=sized(b"")), Code.CHANGE_MALFORMED),
    "a text of other bytes": (insert(s=sized(b"\xff\xfe")), Code.BAD_ENCODING),
    "half a surrogate pair": (insert(s=sized(b"\xed\xa0\x80")), Code.BAD_ENCODING),
    "a boolean of 2": (insert(b=b"\x02"), Code.CHANGE_MALFORMED),
    "a timestamp after 9999": (insert(at=number(253_402_300_800_000_000)), Code.VALUE_OUT_OF_RANGE),
    "a date after 9999": (insert(day=number(2_932_897)), Code.VALUE_OUT_OF_RANGE),
    "a date of 34 bits": (insert(day=number(2**33)), Code.VALUE_OUT_OF_RANGE),
    "a length below 0": (insert(s=number(-1)), Code.AVRO_LIMIT),
    "a length of a gigabyte": (insert(s=number(2**30)), Code.AVRO_LIMIT),
    "a length of all that a JVM can hold": (insert(s=number(2**31 - 10)), Code.AVRO_LIMIT),
    "a length of a terabyte": (insert(s=number(2**40)), Code.AVRO_LIMIT),
    "an INSERT with before": (
        b"\x00" + CHANGES.encode(Change(Op.UPDATE, ROW, ROW))[1:],
        Code.CHANGE_MALFORMED,
    ),
    "an UPDATE without before": (b"\x02" + insert()[1:], Code.CHANGE_MALFORMED),
    "a DELETE without before": (b"\x04\x00\x00", Code.CHANGE_MALFORMED),
    "an UPDATE of the key": (
        CHANGES.encode(Change(Op.UPDATE, (2, *ROW[1:]), ROW)),
        Code.UPDATE_CHANGES_PK,
    ),
    "another row's key": (CHANGES.encode(Change(Op.INSERT, None, (2, *ROW[1:]))), Code.KEY_MISMATCH),
}


def test_each_way_to_be_no_change_has_its_code_and_its_place(decode: Decode) -> None:
    sound = insert()
    values = [value for broken, _ in BROKEN.values() for value in (sound, broken)]
    _, faults = decode(*values)
    assert {fault.offset: fault.code for fault in faults} == {
        2 * position + 1: code for position, (_, code) in enumerate(BROKEN.values())
    }
    assert all(fault.found and fault.expected for fault in faults)


def test_a_record_key_that_is_missing_or_broken_is_named(decode: Decode) -> None:
    _, faults = decode(*[insert()] * 4, keys=[None, b"", b"\x02\x00", b"\x80"])
    assert [fault.code for fault in faults] == [Code.PK_NULL, *[Code.KEY_MISMATCH] * 3]


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
