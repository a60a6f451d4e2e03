"""Rows of `upsert` in JSON are decoded to what the reference decoder reads, sound records and broken ones."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pytest

from schemas.formats.upsert import KeyForm, UpsertFormat
from schemas.table import Column, declare
from schemas.types import ColumnType, TypeName
from streaming.lane.faults import MOST_FAULTS
from tests.kit.decoding import Record, by_reference, changes_of, differences
from tests.kit.json_records import ODD, TAILS, records
from tests.kit.thorough import pairs
from tests.kit.values import KEY_TYPES, TYPES, drawn

WIDE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "name": "string", "price": "decimal(9,2)"}
        | {f"c{number}": str(kind) for number, kind in enumerate(TYPES)},
        "primary_key": ["name", "id", "price"],
    }
)


def one_by_one() -> list[Record]:
    """Each odd cell in each column, alone and beside others, and each odd end."""
    key = written_key(WIDE.key_columns)
    cells = [f'{{"{column.name}":{cell}}}' for column in WIDE.columns for cell in ODD]
    cells += [f'{{"c1":1, "other" : {cell},"c2":2}} ' for cell in ODD]
    cells += [f'{{"c6":"a","c2":{cell},"c2":3}}' for cell in ("1", "null")]
    ends = [f'{{"c1":{cell}}}{tail}' for cell in ("1", '{"a":[]}', '"}"') for tail in TAILS]
    names = ['{"C1":1}', r'{"c\u0031":1}', '{"c1 ":"x"}', '{"c5":"c5","c1":1}', r'{"a\"c5":"1.5","c5":1.5}']
    names += [
        r'{"c\u0035":1.5,"x":{"c5":"1.5"}}',
        '{"c5":1.5,"x":{"c5":"1.5"}}',
        '{"x":{"c5":1.5},"c5":"1.5"}',
    ]
    for name in (column.name for column in WIDE.columns if column.type.name is TypeName.DECIMAL):
        long, other = f'"{name}":1234567890123.1234567890', f'"{name}":2.5'
        for first, last in ((long, other), (other, long)):
            names += [f'{{{first},"x":{{{last}}}}}', f'{{"x":{{{first}}},{last}}}', f"{{{first},{last}}}"]
        names += [f'{{{other},"\\u00{ord(name[0]):x}{name[1:]}":1.5}}', f'{{"{name}" : 1.50 ,"x":[1.5]}}']
    names += ['{"c5":"_bf_e1a75c0d"}', '{"_bf_e1a75c0db":{}}']
    not_utf8 = [b'{"%s":"%s"}' % (name, bytes_) for name in (b"c5", b"x") for bytes_ in NOT_UTF8]
    texts = (*cells, *ends, *names)
    return [(key, value) for value in (*(text.encode("utf-8", "surrogatepass") for text in texts), *not_utf8)]


NOT_UTF8 = [b"\xff", b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]


def written_key(columns: Sequence[Column]) -> bytes:
    cells = {"id": "7", "name": '"a"', "price": "1.50"}
    return ("{" + ",".join(f'"{column.name}":{cells[column.name]}' for column in columns) + "}").encode()


def test_every_odd_cell_is_the_same_to_columns_and_reference_in_every_column() -> None:
    found = one_by_one()
    for start in range(0, len(found), MOST_FAULTS - 1):
        assert differences(UpsertFormat(), WIDE, found[start : start + MOST_FAULTS - 1]) == []


def test_records_of_every_type_are_the_same_to_columns_and_reference() -> None:
    sound, odd = (drawn(records(WIDE, key="record", odd=odd), 250) for odd in (False, True))
    assert differences(UpsertFormat(), WIDE, [*sound, *odd]) == []
    refused = [isinstance(each, str) for each in by_reference(UpsertFormat(), WIDE, [*sound, *odd])]
    assert not any(refused[: len(sound)])
    assert any(refused[len(sound) :])


def odd_keys(form: KeyForm) -> list[Record]:
    """Each odd cell as a key, of rows and of deletes, alone and with something behind it."""
    quotes = {'"'} if form == "text" else set()
    keys = ODD + [cell.strip('"') for cell in ODD if quotes] + [""]
    keys += [f"{cell}{tail}" for cell in ("7", '"a"', '"a,b}"') for tail in TAILS]
    if form == "record":
        wrapped = [f'{{"id":{key}}}' for key in keys]
        keys = [
            *wrapped,
            *(f'{{"id":7}}{tail}' for tail in TAILS),
            '{"id":7,"id":7}',
            '{"id":7,"x":1}',
            "{}",
            "[]",
        ]
    found = [(key.encode("utf-8", "surrogatepass"), value) for key in keys for value in (b"{}", None)]
    return [
        *found,
        (None, b"{}"),
        *((each, b"{}") for each in NOT_UTF8),
        *((b"7", value) for value in OWN_KEYS),
    ]


OWN_KEYS = [
    b'{"id":7}',
    b'{"id":"7"}',
    b'{"id":8}',
    b'{"id":null}',
    b'{"id":7.0}',
    b'{"id":true}',
    b'{"id":"7"}{}',
]


@pytest.mark.parametrize(("form", "kind"), pairs(("record", "json", "text"), KEY_TYPES))
def test_keys_of_every_type_are_the_same_to_columns_and_reference(form: KeyForm, kind: ColumnType) -> None:
    table = declare({"name": "t", "columns": {"id": str(kind), "note": "string"}, "primary_key": ["id"]})
    random = drawn(records(table, key=form, odd=True), 100)
    assert differences(UpsertFormat(key=form), table, [*odd_keys(form), *random]) == []


def test_bytes_of_any_length_are_read() -> None:
    columns = {"id": "bigint", "raw": "binary"}
    table = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
    lengths = (0, 1, 2, 56, 57, 58, 59, 76, 3_000)
    found: list[Record] = [
        (b'{"id":1}', b'{"raw":"%s"}' % base64.b64encode(bytes(length))) for length in lengths
    ]
    assert differences(UpsertFormat(), table, found) == []
    assert changes_of(UpsertFormat(), table, found).after[1].to_pylist() == list(map(bytes, lengths))
