"""Values at the edges of their types, as connectors write them: each is what it stands for, or an error with its code.

What is expected is computed here; the columnar reader says the same as the reference decoder, or leaves it to that one.
"""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.errors import Code
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.upsert import UpsertFormat
from schemas.table import declare
from schemas.types import MAX_DECIMAL_PRECISION, Value
from tests.kit.one_value import by_columns, compact, event, read, table_of
from tests.kit.single_records import single_records
from tests.kit.two_ways import fast
from tests.kit.values import examples

UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MODES = {
    "milliseconds": ("io.debezium.time.Timestamp", 1_000),
    "microseconds": ("io.debezium.time.MicroTimestamp", 1_000_000),
    "nanoseconds": ("io.debezium.time.NanoTimestamp", 1_000_000_000),
}
edge = settings(max_examples=examples(200))


def exact(number: Decimal, precision: int, scale: int) -> Decimal | Code:
    """Without the thread's context, which rounds."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    places = scale + exponent
    scaled, rest = (whole * 10**places, 0) if places >= 0 else divmod(whole, 10**-places)
    return Code.VALUE_OUT_OF_RANGE if rest or abs(scaled) >= 10**precision else Decimal(f"{scaled}E-{scale}")


BYTES = [
    sign * (1 << (8 * size - 1)) + step for size in range(1, 18) for sign in (1, -1) for step in (-1, 0, 1)
]
"""Unscaled numbers at which a byte more is needed, with either sign, up to more than 128 bits."""
UNSCALED = st.sampled_from(sorted({0, *BYTES, 10**38 - 1, 1 - 10**38, 10**38})) | st.integers(-(10**6), 10**6)
PRECISE = DebeziumFormat(decimal="precise")


def base64_of(number: int) -> str:
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, signed=True)).decode()


@edge
@given(
    number=UNSCALED,
    scale=st.integers(-40, 45) | st.sampled_from([0, 0, 2, 2, 10]),
    kind=st.sampled_from([(38, 0), (38, 10), (20, 0), (18, 2), (9, 9)]),
    way=st.sampled_from(["own", "frame", "struct", "absent"]),
)
@example(number=12, scale=-2, kind=(38, 10), way="struct")
@example(number=12, scale=-2, kind=(18, 2), way="frame")
@example(number=2**64 - 1, scale=0, kind=(20, 0), way="own")
def test_decimals_in_bytes(number: int, scale: int, kind: tuple[int, int], way: str) -> None:
    precision, own = kind
    table, cell, schema = table_of(f"decimal({precision},{own})"), base64_of(number), None
    if way in ("own", "absent"):
        scale = own
    if way == "frame":
        parameters = {"scale": str(scale), "connect.decimal.precision": "38"}
        schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
    elif way == "absent":
        schema = {"type": "bytes"}
    given_cell = {"scale": scale, "value": cell} if way == "struct" else cell
    expected = exact(Decimal(f"{number}E{-scale}"), precision, own)
    assert read(PRECISE, table, event(given_cell, schema)) == expected


@pytest.mark.parametrize("kind", ["decimal(38,0)", "decimal(38,18)"])
def test_decimals_of_each_number_of_bytes_are_read_by_columns(kind: str) -> None:
    precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
    held = [number for number in BYTES if abs(number) < 10**MAX_DECIMAL_PRECISION]
    expected = [exact(Decimal(f"{number}E-{scale}"), precision, scale) for number in held]
    records = [event(base64_of(number)) for number in held]
    assert by_columns(PRECISE, table_of(kind), records, expected)


@pytest.mark.parametrize(
    "scale", ["+2", "2.0", " 2", "", "x", "1000", "-", 2, 2.5, [], True], ids=lambda scale: repr(scale)
)
def test_a_scale_that_can_not_be_read_is_an_error(scale: object) -> None:
    schema = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": scale},
    }
    table = table_of("decimal(18,2)")
    assert read(PRECISE, table, event("DA==", schema)) is Code.SCHEMA_INCOMPATIBLE
    assert read(PRECISE, table, event(None, schema)) is Code.SCHEMA_INCOMPATIBLE
    # What a schema says of a column that is not read so is no matter.
    assert read(PRECISE, table_of("string"), event("x", schema)) == "x"


def test_a_decimal_without_its_scale_is_an_error() -> None:
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
    assert read(PRECISE, table_of("decimal(18,2)"), event("DA==", schema)) is Code.SCHEMA_INCOMPATIBLE


WRAPPED = [0, 1, 2**63 - 1, -(2**63), -(2**63) + 1, -1, -2]


@edge
@given(number=st.sampled_from([*WRAPPED, 2**63, 2**64 - 1, -(2**63) - 1]) | st.integers(-(2**63), 2**63 - 1))
def test_unsigned_numbers_that_wrapped(number: int) -> None:
    is_long = -(2**63) <= number < 2**63
    expected = Decimal(number % 2**64) if is_long else Code.VALUE_OUT_OF_RANGE
    table = table_of("decimal(20,0)", unsigned="wrapped")
    for schema in (None, {"type": "int64"}):
        assert read(DebeziumFormat(), table, event(number, schema)) == expected
    assert read(UpsertFormat(), table, (b'{"id":7}', compact({"id": 7, "c": number}))) == expected


def test_unsigned_numbers_are_read_by_columns_also_as_keys() -> None:
    table = table_of("decimal(20,0)", unsigned="wrapped")
    expected = [Decimal(number % 2**64) for number in WRAPPED]
    assert by_columns(DebeziumFormat(), table, [event(number) for number in WRAPPED], expected)
    kind = {"type": "decimal(20,0)", "unsigned": "wrapped"}
    table = declare({"name": "t", "columns": {"id": kind, "c": "int"}, "primary_key": ["id"]})
    key, value = event(1)
    record = key.replace(b"7", b"-1"), value.replace(b'"id":7', b'"id":-1')
    [found] = fast(DebeziumFormat(), table, [record])
    assert found.change is not None
    assert found.change.after == (Decimal(2**64 - 1), 1)
    rows = single_records(DebeziumFormat(), table.columns, table.key_columns)
    assert rows.read_key(b'{"id":-1}') == (Decimal(2**64 - 1),)
    for form, given_key in (("record", b'{"id":-1}'), ("json", b"-1"), ("text", b"-1")):
        upserts = single_records(UpsertFormat.model_validate({"key": form}), table.columns, table.key_columns)
        assert upserts.read_key(given_key) == (Decimal(2**64 - 1),)


MICROS = st.sampled_from(
    [0, 1, -1, 999999, -62135596800000000, 253402300799999999, -62135596800000001, 253402300800000000]
) | st.integers(-(10**17), 3 * 10**17)


@edge
@given(
    micros=MICROS,
    nanos=st.sampled_from([0, 1, 999]) | st.integers(0, 999),
    mode=st.sampled_from(sorted(MODES)),
    way=st.sampled_from(["upstream", "column", "frame"]),
    sub_micros=st.sampled_from(["refuse", "truncate"]),
)
def test_instants_in_units(micros: int, nanos: int, mode: str, way: str, sub_micros: str) -> None:
    meaning, unit = MODES[mode]
    all_nanos = micros * 1_000 + nanos
    number = all_nanos * unit // 1_000_000_000
    whole, rest = divmod(number * 1_000_000, unit)
    expected: Value = Code.VALUE_OUT_OF_RANGE
    is_long = -(2**63) <= number < 2**63
    if (
        is_long
        and -62_135_596_800_000_000 <= whole <= 253_402_300_799_999_999
        and (not rest or sub_micros == "truncate")
    ):
        expected = UNIX_ZERO + dt.timedelta(microseconds=whole)
    time: str | None = {"frame": "adaptive", "column": "isostring"}.get(way, mode)
    if way == "upstream" and mode == "milliseconds":
        time = "connect"
    units = {"time": mode} if way == "column" else {}
    format_ = DebeziumFormat.model_validate({"time": time, "sub_micros": sub_micros})
    schema = {"type": "int64", "name": meaning} if way == "frame" else None
    assert read(format_, table_of("timestamp", **units), event(number, schema)) == expected


YEARS = [
    "0001",
    "9999",
    "2026",
    "0000",
    "-0043",
    "-0001",
    "10000",
    "+10000",
    "-10000",
    "+294276",
    "+2026",
    "226",
]


@edge
@given(
    year=st.sampled_from(YEARS),
    digits=st.integers(0, 10).flatmap(lambda size: st.text("09", min_size=size, max_size=size)),
    offset=st.sampled_from(["Z", "+00:00", "+01:00", "-18:00"]),
    sub_micros=st.sampled_from(["refuse", "truncate"]),
)
def test_instants_in_text(year: str, digits: str, offset: str, sub_micros: str) -> None:
    text = f"{year}-01-31T12:00:00{'.' * bool(digits)}{digits}{offset}"
    is_form = len(digits) <= 9 and year not in ("+2026", "226")
    has_rest = bool(digits[6:].strip("0")) and sub_micros == "refuse"
    expected: Value = Code.JSON_MALFORMED
    if is_form and (has_rest or not "0001" <= year <= "9999" or len(year) > 4):
        expected = Code.VALUE_OUT_OF_RANGE
    elif is_form:
        at = dt.datetime(int(year), 1, 31, 12, microsecond=int(f"{digits[:6]:0<6}"), tzinfo=dt.UTC)
        expected = at - dt.timedelta(hours={"+": 1, "-": -1, "Z": 0}[offset[0]] * int(offset[1:3] or 0))
    format_ = DebeziumFormat.model_validate({"time": "microseconds", "sub_micros": sub_micros})
    assert read(format_, table_of("timestamp"), event(text)) == expected
    upserts = UpsertFormat.model_validate({"sub_micros": sub_micros})
    assert read(upserts, table_of("timestamp"), (b'{"id":7}', compact({"id": 7, "c": text}))) == expected


@edge
@given(
    numbers=st.lists(
        st.sampled_from(["1.50", "-0", "1E+3", "-0.0", "12345678901234567890.10", "7"]), min_size=1
    )
)
def test_numbers_within_json_keep_their_text(numbers: list[str]) -> None:
    text = f'{{"a":[{",".join(numbers)}],"b":{numbers[0]}}}'
    key, value = event("?")
    for spaced in (text, text.replace(",", " , ").replace(":", " : ")):
        assert (
            read(DebeziumFormat(), table_of("string"), (key, value.replace(b'"?"', spaced.encode()))) == text
        )
    assert (
        read(DebeziumFormat(), table_of("string"), (key, value.replace(b'"?"', numbers[0].encode())))
        == numbers[0]
    )
