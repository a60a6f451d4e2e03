"""Tables of real MariaDB and MySQL servers as they were in the end, and what records of connectors fold to.

`tests/records/rows-<server>.json` has the servers' rows as texts; `recorded(..., server)` the records. Server and
connector are those of `debezium-<server>-*.jsonl`: MariaDB 10.11 with Debezium 3.5, MySQL 8.0 with Debezium 3.6.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from schemas.formats.protocol import UpstreamFormat
from schemas.position import Key
from schemas.records import Op
from schemas.table import Column, TableSchema, declare
from schemas.types import TypeName, Value
from tests.kit.debezium import RECORDS, Recorded
from tests.kit.single_records import single_records

SERVERS = ("mariadb", "mysql")

ORDERS = {
    "region": "string",
    "id": "bigint",
    "qty": "bigint",
    "amount": "decimal(20,4)",
    "remark": "string",
    "at": "timestamp",
    "placed": "timestamp",
    "status": "string",
}
TYPES = {
    **dict.fromkeys(("id", "ti", "tiu", "t1", "si", "siu", "mi", "miu", "i"), "int"),
    **dict.fromkeys(("iu", "bi"), "bigint"),
    "biu": "decimal(20,0)",
    "b1": "boolean",
    **dict.fromkeys(("b8", "b64"), "binary"),
    "f": "float",
    "d": "double",
    "dec4": "decimal(20,4)",
    "dec0": "decimal(38,0)",
    **dict.fromkeys(("en", "se"), "string"),
    "yr": "int",
    "da": "date",
    **dict.fromkeys(("dt0", "dt3", "dt6", "ts0", "ts6"), "timestamp"),
    **dict.fromkeys(("tm0", "tm3", "tm6"), "bigint"),
    "js": "string",
    **dict.fromkeys(("bin8", "vb", "bl"), "binary"),
    **dict.fromkeys(("tx", "vc", "la", "ch", "ge"), "string"),
    **dict.fromkeys(("gv", "gs", "nn"), "int"),
    "nda": "date",
    "ndt": "timestamp",
}
"""But for MariaDB's uuid. `ge`, a geometry, is an object in JSON, and in Avro nothing that a column has."""
BIG_KEY = {"id": "decimal(20,0)", "at": "timestamp", "v": "int"}
COLUMNS: Mapping[str, tuple[Mapping[str, Any], list[str]]] = {
    "orders": (ORDERS, ["region", "id"]),
    "types": (TYPES, ["id"]),
    "bigkey": (BIG_KEY, ["id", "at"]),
}
"""Columns and primary key of each table."""


def server_table(name: str, *, without: Iterable[str] = (), **over: Any) -> TableSchema:
    """The declaration of a table, with other declarations for some columns, and without some."""
    columns, key = COLUMNS[name]
    left = {column: kind for column, kind in {**columns, **over}.items() if column not in without}
    return declare({"name": name, "columns": left, "primary_key": key})


def server_rows(server: str, table: TableSchema) -> dict[Key, dict[str, Value]]:
    """The rows of the server, in the values of the table's columns, by primary key."""
    found = json.loads((RECORDS / f"rows-{server}.json").read_text(encoding="utf-8"))[table.name]
    rows = [{each.name: _value(row[each.name], each) for each in table.columns} for row in found]
    return {tuple(row[name] for name in table.primary_key): row for row in rows}


def folded(
    records: Iterable[Recorded], format_: UpstreamFormat, table: TableSchema
) -> dict[Key, dict[str, Value]]:
    """The rows after these records, each of which is read by itself. Raises: InputError."""
    reader, rows = single_records(format_, table.columns, table.key_columns), dict[Key, dict[str, Value]]()
    for record in records:
        change = reader.read_record(record.key, record.value).change
        if change is None:
            continue
        key = table.key_of(change.row)
        if change.op is Op.DELETE:
            rows.pop(key, None)
        else:
            rows[key] = dict(zip(table.column_names, change.row, strict=True))
    return rows


def _value(text: str | None, column: Column) -> Value:
    """A zero date, which no column has, stays a text."""
    if text is None:
        return None
    match column.type.name:
        case TypeName.BOOLEAN:
            return text == "1"
        case TypeName.INT | TypeName.BIGINT:
            return _micros(text) if ":" in text else int(text)
        case TypeName.FLOAT | TypeName.DOUBLE:
            return float(text)
        case TypeName.DECIMAL:
            return Decimal(text)
        case TypeName.BINARY if column.name in ("b8", "b64"):
            return int(text).to_bytes(int(column.name[1:]) // 8, "little")  # as the connector writes bits
        case TypeName.BINARY:
            return bytes.fromhex(text)
        case TypeName.DATE if "-00" not in text:
            return dt.date.fromisoformat(text)
        case TypeName.TIMESTAMP if "-00" not in text:
            return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return text


def _micros(time: str) -> int:
    """Of a TIME, which may be longer than a day, and negative."""
    hours, minutes, seconds = time.removeprefix("-").split(":")
    whole = (int(hours) * 60 + int(minutes)) * 60 + Decimal(seconds)
    return int(whole * 1_000_000) * (-1 if time.startswith("-") else 1)
