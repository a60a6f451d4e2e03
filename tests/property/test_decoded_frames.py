"""Frames, deletes that are rows, empty keys, wrapped numbers and names are decoded as the reference reads them."""

from __future__ import annotations

import json

import pytest

from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema, declare
from tests.kit.decoding import Record, by_reference, differences
from tests.kit.one_value import event

WRAPPED = {"type": "decimal(20,0)", "unsigned": "wrapped"}


def table(**columns: object) -> TableSchema:
    return declare({"name": "t", "columns": columns, "primary_key": [next(iter(columns))]})


def records(*pairs: tuple[object, object]) -> list[Record]:
    """Of keys and values in JSON, or as they are."""
    return [(_bytes(key), _bytes(value)) for key, value in pairs]


def _bytes(part: object) -> bytes | None:
    return part if part is None or isinstance(part, bytes) else json.dumps(part).encode()


ROWS = table(id="string", v="string", n="int")
NAMED = table(id={"type": "bigint", "field": "order-id"}, v={"type": "string", "field": "größe"}, n="int")
UNSIGNED = table(id=WRAPPED, c=WRAPPED)
KEY = {"id": "a"}
FRAME = {"schema": {"type": "struct", "fields": [{"field": "id", "type": "string"}]}}

CASES: dict[str, tuple[UpstreamFormat, TableSchema, list[Record]]] = {
    "deletes": (
        UpsertFormat(),
        ROWS,
        records(
            (KEY, {"id": "a", "v": "x", "__deleted": "false"}),
            (KEY, {"id": "a", "v": None, "__deleted": "true"}),
            (KEY, {"id": "a", "v": "y", "n": 1}),
            ({"id": "b"}, {"id": "b", "__deleted": "true", "n": 5}),
            (KEY, None),
            (KEY, b""),
        ),
    ),
    "deletes as booleans": (
        UpsertFormat(),
        ROWS,
        records(
            (KEY, {"id": "a", "__deleted": True}), (KEY, {"id": "a", "__deleted": False}), (KEY, {"v": "z"})
        ),
    ),
    "faulty deletes": (
        UpsertFormat(),
        ROWS,
        records(
            (KEY, {"id": "a", "v": "x"}), (KEY, {"id": "a", "__deleted": "yes"}), (KEY, {"__deleted": 1})
        ),
    ),
    "frames": (
        UpsertFormat(),
        ROWS,
        records(
            (KEY, {**FRAME, "payload": {"id": "a", "v": "x"}}),
            (KEY, {"payload": {"v": "x"}, "schema": None}),
            (KEY, {"payload": None, **FRAME}),
            ({**FRAME, "payload": KEY}, {"schema": None, "payload": None}),
            ({"payload": KEY, "schema": None}, {"v": "y"}),
            (KEY, {"schema": "text", "payload": "text"}),
            (KEY, {"schema": "text", "payload": "text", "v": "a row"}),
            (KEY, {"payload": {"a": 1}, "v": "a row"}),
            (KEY, {}),
        ),
    ),
    "keys as text": (
        UpsertFormat(key="text"),
        ROWS,
        records(
            (b"", {"v": "x"}), (b"a", {"v": "y"}), (b"", None), (None, {"v": "z"}), (b"\xff", {"v": "z"})
        ),
    ),
    "keys as json": (
        UpsertFormat(key="json"),
        ROWS,
        records(("a", {"v": "x"}), ({"schema": None, "payload": "a"}, {"v": "y"}), (b"", {}), ({"a": 1}, {})),
    ),
    "names": (
        UpsertFormat(),
        NAMED,
        records(
            ({"order-id": 1}, {"größe": "x", "n": 1}),
            ({"order-id": 2}, {"order-id": 2, "id": 3, "v": 7}),
            ({"id": 1}, {}),
        ),
    ),
    "wrapped keys": (
        UpsertFormat(),
        UNSIGNED,
        records(*(({"id": number}, {"c": number}) for number in (-1, 0, 7, 2**63 - 1, -(2**63), 2**63))),
    ),
    "wrapped keys as text": (
        UpsertFormat(key="text"),
        UNSIGNED,
        records(
            *((str(number).encode(), {"c": number}) for number in (-1, 0, 2**63 - 1, -(2**63), 2**63)),
            (b"x", {}),
        ),
    ),
    "events": (
        DebeziumFormat(unavailable="?"),
        NAMED,
        [
            (key.replace(b'"id":7', b'"order-id":7'), value.replace(b'"id":7', b'"order-id":7'))
            for key, value in (
                event(cell, name="größe")
                for cell in ("x", None, "?", "Pw==", "3f", [63], [1.50], {"a": [1.0]}, 7, 7.50)
            )
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_lanes_decode_what_the_reference_reads(name: str) -> None:
    format_, of, found = CASES[name]
    assert differences(format_, of, found) == []
    assert any(isinstance(each, bytes) for each in by_reference(format_, of, found))
