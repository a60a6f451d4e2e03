"""A table with a column of most types, and records of it that are invalid in each way that there is."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

from schemas.errors import Code
from schemas.records import Change, Op
from schemas.table import declare
from tests.kit.avro_codec import ChangeCodec, KeyCodec

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
KEY = KEYS.encode((1,))


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
    "an int of six bytes": (insert(i=b"\x8a" + b"\x80" * 4 + b"\x00"), Code.CHANGE_MALFORMED),
    "a bigint of eleven bytes": (insert(id=b"\x82" + b"\x80" * 9 + b"\x00"), Code.CHANGE_MALFORMED),
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
"""Values that come with `KEY`."""

BROKEN_KEYS: dict[str, tuple[bytes | None, Code]] = {
    "no key": (None, Code.PK_NULL),
    "an empty key": (b"", Code.KEY_MISMATCH),
    "a key with a byte more": (KEY + b"\x00", Code.KEY_MISMATCH),
    "a key cut short": (b"\x80", Code.KEY_MISMATCH),
    "a key of eleven bytes": (b"\x82" + b"\x80" * 9 + b"\x00", Code.KEY_MISMATCH),
}
"""Keys that come with the value `insert()`."""
