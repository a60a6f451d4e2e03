from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Code, InputError
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column, declare
from schemas.types import ColumnType, TypeName, Value
from tests.kit.avro_codec import ChangeCodec, KeyCodec, canonical
from tests.kit.values import column_lists, key_column_lists, rows_of

TABLE = declare(
    {
        "name": "orders",
        "columns": {
            "id": "int",
            "region": "string",
            "amount": "decimal(20,2)",
            "day": "date",
            "at": "timestamp",
            "ok": "boolean",
            "ratio": "float",
            "weight": "double",
            "blob": "binary",
        },
        "primary_key": ["id", "region"],
    }
)
CODEC = ChangeCodec(TABLE.columns)
KEYS = KeyCodec(TABLE.key_columns)
ROW: Row = (
    70_000,
    "é secret",
    Decimal("-12345678.90"),
    dt.date(2026, 1, 31),
    dt.datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=dt.UTC),
    True,
    0.5,
    -1e300,
    b"\x00\xff" * 40,
)
NULLS: Row = (*ROW[:2], *[None] * 7)
CHANGES = [Change(Op.INSERT, None, ROW), Change(Op.UPDATE, ROW, NULLS), Change(Op.DELETE, ROW, None)]


def refusal(decode: Callable[..., object], data: bytes) -> InputError | None:
    """The InputError that `data` gives, None if it is a record. Any other error passes through."""
    try:
        decode(data, where="orders-0@7")
    except InputError as error:
        return error
    return None


def code_of(decode: Callable[..., object], data: bytes) -> Code | None:
    error = refusal(decode, data)
    if error is None:
        return None
    assert error.where == "orders-0@7"
    assert "secret" not in str(error)
    return error.code


def column(kind: str, *, nullable: bool = False) -> Column:
    return Column("c", ColumnType.parse(kind), nullable)


def varint(value: int) -> bytes:
    left, out = value << 1 if value >= 0 else (-value << 1) - 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def insert(raw: bytes) -> bytes:
    """An INSERT of a row whose bytes are these."""
    return b"\x00\x00\x02" + raw


def same(left: Row | None, right: Row | None) -> bool:
    """Equality that takes NaN for itself and tells 0.0 from -0.0."""
    return repr(left) == repr(right)


def canonical_row(row: Row, columns: tuple[Column, ...]) -> Row:
    return tuple(canonical(value, c) for value, c in zip(row, columns, strict=True))


@given(
    column_lists().flatmap(lambda columns: st.tuples(st.just(columns), rows_of(columns), rows_of(columns)))
)
def test_a_change_reads_back_as_it_was(drawn: tuple[tuple[Column, ...], Row, Row]) -> None:
    columns, before, after = drawn
    codec = ChangeCodec(columns)
    before, after = canonical_row(before, columns), canonical_row(after, columns)
    for change in (
        Change(Op.INSERT, None, after),
        Change(Op.UPDATE, before, after),
        Change(Op.DELETE, before, None),
    ):
        read = codec.decode(codec.encode(change))
        assert read.op is change.op
        assert same(read.before, change.before)
        assert same(read.after, change.after)


@given(key_column_lists().flatmap(lambda columns: st.tuples(st.just(columns), rows_of(columns))))
def test_a_key_reads_back_as_it_was(drawn: tuple[tuple[Column, ...], Key]) -> None:
    columns, key = drawn
    codec = KeyCodec(columns)
    assert codec.decode(codec.encode(key)) == key


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.op.name)
def test_a_change_cut_anywhere_is_truncated(change: Change) -> None:
    data = CODEC.encode(change)
    assert {code_of(CODEC.decode, data[:size]) for size in range(len(data))} == {Code.AVRO_TRUNCATED}


def test_a_key_cut_anywhere_is_truncated() -> None:
    data = KEYS.encode(ROW[:2])
    assert {code_of(KEYS.decode, data[:size]) for size in range(len(data))} == {Code.AVRO_TRUNCATED}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.op.name)
def test_bytes_after_a_change_are_refused(change: Change) -> None:
    assert code_of(CODEC.decode, CODEC.encode(change) + b"\x00") is Code.AVRO_TRAILING
    assert code_of(KEYS.decode, KEYS.encode(ROW[:2]) + b"\x00") is Code.AVRO_TRAILING


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.op.name)
def test_a_flipped_bit_gives_a_named_error_or_a_well_formed_change(change: Change) -> None:
    data = CODEC.encode(change)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        if code_of(CODEC.decode, bytes(flipped)) is None:
            assert CODEC.decode(bytes(flipped)).is_well_formed()


@given(st.binary(max_size=80))
def test_random_bytes_give_a_named_error_or_a_well_formed_change(data: bytes) -> None:
    if code_of(CODEC.decode, data) is None:
        assert CODEC.decode(data).is_well_formed()


@pytest.mark.parametrize("index", [3, -1, 2**31 - 1, -(2**31), 2**40])
def test_an_op_that_does_not_exist_has_its_own_code(index: int) -> None:
    data = varint(index) + CODEC.encode(CHANGES[0])[1:]
    assert code_of(CODEC.decode, data) is Code.UNKNOWN_OP


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("before", [None, NULLS])
@pytest.mark.parametrize("after", [None, NULLS])
def test_halves_that_the_op_forbids_are_refused(op: Op, before: Row | None, after: Row | None) -> None:
    change = Change(op, before, after)
    refused = code_of(CODEC.decode, CODEC.encode(change))
    assert refused is (None if change.is_well_formed() else Code.CHANGE_MALFORMED)


@pytest.mark.parametrize(
    ("kind", "raw", "code"),
    [
        ("int", varint(2**31), Code.VALUE_OUT_OF_RANGE),
        ("int", varint(-(2**31) - 1), Code.VALUE_OUT_OF_RANGE),
        ("int", varint(2**31 - 1), None),
        ("int", varint(-(2**31)), None),
        ("decimal(3,1)", b"\x04\x03\xe8", Code.VALUE_OUT_OF_RANGE),  # 100.0
        ("decimal(3,1)", b"\x04\x03\xe7", None),  # 99.9
        ("decimal(3,1)", b"\x06\x00\x27\x0b", Code.VALUE_OUT_OF_RANGE),  # 999.5, which rounds
        ("date", varint(10**8), Code.VALUE_OUT_OF_RANGE),
        ("date", varint(2**62), Code.VALUE_OUT_OF_RANGE),
        ("timestamp", varint(2**62), Code.VALUE_OUT_OF_RANGE),
        ("string", b"\x04\xff\xfe", Code.BAD_ENCODING),
        ("string", b"\x06\xed\xa0\x80", Code.BAD_ENCODING),  # a lone surrogate
        ("string", varint(2**40) + b"abc", Code.AVRO_LIMIT),
        ("string", varint(-5) + b"abc", Code.AVRO_LIMIT),
        ("string", varint(5000) + b"abc", Code.AVRO_TRUNCATED),
    ],
)
def test_a_value_that_its_type_does_not_have_is_refused(kind: str, raw: bytes, code: Code | None) -> None:
    kinds = column(kind)
    assert code_of(ChangeCodec([kinds]).decode, insert(raw)) is code
    if kinds.type.allowed_in_key:
        assert code_of(KeyCodec([kinds]).decode, raw) is code


def test_a_union_branch_that_does_not_exist_is_malformed() -> None:
    codec = ChangeCodec([column("bigint", nullable=True)])
    assert code_of(codec.decode, insert(b"\x04\x02")) is Code.CHANGE_MALFORMED
    assert code_of(codec.decode, b"\x00\x00\x04\x02\x02") is Code.CHANGE_MALFORMED


def test_a_column_out_of_range_is_named_but_its_value_is_not() -> None:
    with pytest.raises(InputError, match="column c does not fit int") as caught:
        KeyCodec([column("int")]).decode(varint(987_654_321_987))
    assert "987654321987" not in str(caught.value)


def test_decimals_are_exact_to_38_digits() -> None:
    codec = KeyCodec([column("decimal(38,10)")])
    for text in ("9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10, "-0.0000000128"):
        assert codec.decode(codec.encode((Decimal(text),))) == (Decimal(text),)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("decimal(18,2)", Decimal("3.2"), "3.20"),
        ("decimal(18,2)", Decimal("3.2000"), "3.20"),
        ("decimal(18,2)", Decimal("1E+5"), "100000.00"),
        ("decimal(18,2)", Decimal("-0"), "0.00"),
        ("decimal(38,0)", Decimal("9" * 38), "9" * 38),
        ("decimal(2,2)", Decimal("0.99"), "0.99"),
    ],
)
def test_a_decimal_is_brought_to_its_scale(kind: str, value: Decimal, expected: str) -> None:
    assert str(canonical(value, column(kind))) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("decimal(3,2)", Decimal("10")),
        ("decimal(3,2)", Decimal("0.001")),
        ("decimal(2,2)", Decimal("1")),
        ("decimal(38,0)", Decimal("1E+38")),
        ("decimal(38,0)", Decimal("NaN")),
        ("decimal(38,0)", Decimal("Infinity")),
        ("float", 1e39),
        ("timestamp", dt.datetime(2026, 1, 1)),  # noqa: DTZ001 (that is the point)
    ],
)
def test_a_value_that_the_column_can_not_hold_is_refused(kind: str, value: Value) -> None:
    with pytest.raises(ValueError, match="c: a "):
        canonical(value, column(kind))


def test_timestamps_are_brought_to_utc_and_floats_to_32_bits() -> None:
    east = dt.datetime(2026, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert repr(canonical(east, column("timestamp"))) == repr(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert canonical(0.1, column("float")) == 0.10000000149011612
    assert canonical(0.1, column("double")) == 0.1


@pytest.mark.parametrize("name", TypeName)
def test_null_is_canonical_in_every_type(name: TypeName) -> None:
    assert canonical(None, Column("c", ColumnType(name, 3, 1), nullable=True)) is None
