from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pytest

from schemas.types import ColumnType, TypeName
from tests.kit.values import TYPES


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_reads_back_from_its_own_text(kind: ColumnType) -> None:
    assert ColumnType.parse(str(kind)) == kind


def test_case_and_blanks_around_do_not_matter() -> None:
    assert ColumnType.parse("  BigInt ") == ColumnType(TypeName.BIGINT)
    assert ColumnType.parse("DECIMAL( 18 , 2 )") == ColumnType(TypeName.DECIMAL, 18, 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("integer", "not one of boolean, int, bigint"),
        ("", "not one of"),
        ("varchar(10)", "not one of"),
        ("decimal", "needs its precision and scale"),
        ("decimal(18)", "not one of"),
        ("decimal(0,0)", "precision is 1..38"),
        ("decimal(39,2)", "precision is 1..38"),
        ("decimal(5,6)", "scale 0..precision"),
        ("decimal(5,-1)", "not one of"),
    ],
)
def test_what_is_no_type_is_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        ColumnType.parse(text)


def test_only_types_with_one_order_and_one_byte_form_are_allowed_in_a_key() -> None:
    refused = {name for name in TypeName if not ColumnType(name, 1, 0).allowed_in_key}
    assert refused == {TypeName.FLOAT, TypeName.DOUBLE, TypeName.BINARY}


def test_forms_of_the_types_that_need_more_than_a_name() -> None:
    decimal = ColumnType.parse("decimal(18,2)")
    assert decimal.avro == {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
    assert decimal.arrow == pa.decimal128(18, 2)
    assert ColumnType.parse("date").avro == {"type": "int", "logicalType": "date"}
    assert ColumnType.parse("date").arrow == pa.date32()
    assert ColumnType.parse("timestamp").avro == {"type": "long", "logicalType": "timestamp-micros"}
    assert ColumnType.parse("timestamp").arrow == pa.timestamp("us", tz="UTC")


def test_the_widest_decimal_fits_its_arrow_type() -> None:
    widest = Decimal("9" * 28 + "." + "9" * 10)
    assert pa.array([widest], ColumnType.parse("decimal(38,10)").arrow).to_pylist() == [widest]
