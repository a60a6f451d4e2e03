"""Records of the format `upsert` in JSON, read one by one."""

from __future__ import annotations

import pickle
from decimal import Decimal

import pytest

from schemas.errors import Code, InputError
from schemas.formats.protocol import Images
from schemas.formats.upsert import KeyForm, UpsertFormat
from schemas.records import Change, Op
from schemas.table import declare
from tests.kit.single_records import SingleRecords, single_records

TABLE = declare(
    {
        "name": "t",
        "columns": {"note": "string", "id": "bigint", "region": "string", "amount": "decimal(9,2)"},
        "primary_key": ["region", "id"],
    }
)
KEY = b'{"id":7,"region":"EU"}'


def rows() -> SingleRecords:
    return single_records(UpsertFormat(), TABLE.columns, TABLE.key_columns)


def of_one(kind: str, key: KeyForm) -> SingleRecords:
    table = declare({"name": "t", "columns": {"id": kind, "n": "int"}, "primary_key": ["id"]})
    return single_records(UpsertFormat(key=key), table.columns, table.key_columns)


def code_of(key: bytes | None, value: bytes | None, upserts: SingleRecords | None = None) -> Code:
    with pytest.raises(InputError) as caught:
        (upserts or rows()).read_change(key, value, where="t-0@7")
    assert caught.value.where == "t-0@7"
    assert "secret" not in str(caught.value)
    return caught.value.code


def test_a_row_is_an_insert_with_its_key_whether_the_value_repeats_it_or_not() -> None:
    expected = Change(Op.INSERT, None, (None, 7, "EU", Decimal("1.50")))
    for value in (
        b'{"amount":1.5}',
        b'{"region":"EU","amount":"1.50","id":7}',
        b'{"id":null,"amount":1.5,"x":[]}',
    ):
        assert rows().read_change(KEY, value) == expected
    assert rows().read_key(KEY) == ("EU", 7)


def test_a_record_without_a_value_deletes_the_row_of_its_key() -> None:
    for value in (None, b""):
        assert rows().read_change(KEY, value) == Change(Op.DELETE, (None, 7, "EU", None), None)


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"7",
        b'{"id":7}',
        b'{"id":7,"region":"EU","note":"secret"}',
        b'{"id":7,"region":"EU","id":7}',
        b'{"id":"7","region":"EU"}',
        b'{"id":7,"region":"EU"} x',
        b'{"id":7,"REGION":"EU"}',
    ],
)
def test_a_key_that_is_none_or_another_is_a_mismatch(key: bytes | None) -> None:
    for value in (None, b"{}"):
        assert code_of(key, value) is Code.KEY_MISMATCH


def test_a_value_that_has_another_key_is_a_mismatch() -> None:
    assert code_of(KEY, b'{"id":8,"note":"secret"}') is Code.KEY_MISMATCH
    assert code_of(KEY, b'{"region":"secret"}') is Code.KEY_MISMATCH


def test_a_null_in_a_key_is_named_so() -> None:
    assert code_of(b'{"id":null,"region":"EU"}', b"{}") is Code.PK_NULL
    assert code_of(b"null", None, of_one("int", "json")) is Code.PK_NULL


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"secret", Code.JSON_MALFORMED),
        (b"null", Code.JSON_MALFORMED),
        (b'[{"id":7}]', Code.JSON_MALFORMED),
        (b'{"amount":"secret"}', Code.JSON_MALFORMED),
        (b'{"amount":1.001}', Code.VALUE_OUT_OF_RANGE),
        (b'{"note":"\xff"}', Code.BAD_ENCODING),
        (b'{"note":"\\ud800"}', Code.BAD_ENCODING),
    ],
)
def test_a_value_that_is_no_row_has_the_code_of_what_is_wrong(value: bytes, code: Code) -> None:
    assert code_of(KEY, value) is code


def test_the_line_names_the_column() -> None:
    with pytest.raises(InputError, match="in column amount"):
        rows().read_change(KEY, b'{"amount":true}')


def test_a_value_out_of_range_in_a_key_is_named_so() -> None:
    assert code_of(b"2147483648", None, of_one("int", "json")) is Code.VALUE_OUT_OF_RANGE
    assert code_of(b"2147483648", None, of_one("int", "text")) is Code.VALUE_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("kind", "form", "data", "expected"),
    [
        ("int", "json", b" 7 ", 7),
        ("string", "json", b'"a"', "a"),
        ("string", "json", b"7", "7"),
        ("string", "text", b'"a"', '"a"'),
        ("string", "text", b"null", "null"),
        ("int", "text", b"7", 7),
        ("boolean", "text", b"true", True),
    ],
)
def test_a_key_may_be_one_value(kind: str, form: KeyForm, data: bytes, expected: object) -> None:
    upserts = of_one(kind, form)
    assert upserts.read_key(data) == (expected,)
    assert upserts.read_change(data, None) == Change(Op.DELETE, (expected, None), None)


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("data", [b"", b"7 7", b"7.0", b'{"id":7}', b"[7]", b"07", b"\xff"])
def test_what_is_no_such_value_is_no_key(form: KeyForm, data: bytes) -> None:
    expected = Code.BAD_ENCODING if data == b"\xff" else Code.KEY_MISMATCH
    assert code_of(data, None, of_one("int", form)) is expected


def test_the_format_says_what_a_lane_may_rely_on() -> None:
    format_ = UpsertFormat()
    assert (format_.images, format_.may_be_null, format_.may_hold_barriers) == (
        Images.AFTER_ONLY,
        True,
        False,
    )
    assert format_.keys(TABLE.key_columns) is None
    again: UpsertFormat = pickle.loads(pickle.dumps(UpsertFormat(key="text")))  # noqa: S301 (as Spark sends it)
    assert (again, hash(again)) == (UpsertFormat(key="text"), hash(UpsertFormat(key="text")))
    assert again != format_
