"""Recorded topics of MariaDB's and MySQL's connectors fold to the rows that the servers had in the end.

Where they do not, the topic itself has another value: those are listed, one by one.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from schemas.errors import Code, InputError
from schemas.formats.debezium import DebeziumFormat
from schemas.position import Key
from schemas.table import TableSchema
from schemas.types import TypeName, Value
from tests.kit.debezium import Recorded, recorded, recorded_schemas
from tests.kit.servers import SERVERS, folded, server_rows, server_table
from tests.kit.two_ways import agree

MILLIS, MICROS = ({"type": "timestamp", "time": unit} for unit in ("milliseconds", "microseconds"))
TWO_UNITS = {"dt0": MILLIS, "dt3": MILLIS, "dt6": MICROS, "ndt": MILLIS}
"""The connectors' default has two in a record: by the digits of a DATETIME."""
WRAPPED = {"type": "decimal(20,0)", "unsigned": "wrapped"}
PRECISE = {"type": "decimal(20,0)", "decimal": "precise"}
DEFAULT = DebeziumFormat(time="microseconds", decimal="precise")
FRAMED = DebeziumFormat(time="adaptive", decimal="precise")
UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
BIG = Decimal(2**64 - 1)
TIMES = ("tm0", "tm3", "tm6")
Differences = dict[tuple[int, str], Value]


class Topic(NamedTuple):
    """A recorded topic of a table and how it is read. `connector` is the end of the connector's name."""

    form: str
    connector: str
    reads: DebeziumFormat
    over: Mapping[str, Any]
    without: tuple[str, ...] = ()

    def format_of(self, server: str) -> DebeziumFormat:
        return self.reads.with_schemas(recorded_schemas(server)) if self.form == "avro" else self.reads

    def records(self, server: str, table: str) -> list[Recorded]:
        prefix = server[:2] + self.connector
        return [each for each in recorded(self.form, server) if each.topic == f"{prefix}.shop.{table}"]


TOPICS = {
    "plain": Topic("plain", "plain", DEFAULT, {"biu": WRAPPED, **TWO_UNITS}),
    "schemas": Topic("schemas", "schemas", FRAMED, {"biu": WRAPPED}),
    "set": Topic(
        "settings",
        "set",
        DebeziumFormat(time="microseconds", decimal="string"),
        {"biu": PRECISE, "t1": "boolean"},
    ),
    "conn": Topic(
        "settings",
        "conn",
        DebeziumFormat(time="connect", decimal="string"),
        {"biu": WRAPPED, "dec4": "double", "dec0": "double"},
    ),
    "iso": Topic(
        "settings",
        "iso",
        DebeziumFormat(time="isostring", decimal="string"),
        {"biu": WRAPPED, **dict.fromkeys(TIMES, "string")},
    ),
    # A geometry is a record in Avro, which no column has.
    "avro": Topic("avro", "avro", DebeziumFormat(encoding="avro-registry"), {"biu": WRAPPED}, ("ge",)),
}


def differences(
    found: Mapping[Key, Mapping[str, Value]], right: Mapping[Key, Mapping[str, Value]]
) -> Differences:
    """Values of rows that are there, where they are others than the server's."""
    return {
        (key[0], name): value
        for key, row in found.items()
        for name, value in row.items()
        if not is_same(name, value, right[key][name])
    }


def is_same(name: str, value: Value, right: Value) -> bool:
    if value is None or right is None:
        return value is right
    if name == "f":
        return struct.pack("<f", value) == struct.pack("<f", right)
    if name == "ge":
        found = json.loads(value)
        return struct.pack("<I", found["srid"] or 0) + base64.b64decode(found["wkb"]) == bytes.fromhex(right)
    return bool(value == right)


def of_zero_dates(
    server: str, found: Mapping[Key, Mapping[str, Value]], right: Mapping[Key, Mapping[str, Value]]
) -> Differences:
    """Values that connectors make of days that are none: null, or the column's default where null is not allowed."""
    made: Differences = {}
    for key, row in found.items():
        for name in row:
            if isinstance(right[key][name], str) and name in ("da", "dt0", "dt3", "dt6", "ts0", "ts6"):
                made[key[0], name] = (
                    UNIX_ZERO if (server, name) == ("mariadb", "ts0") and key[0] > 10 else None
                )
            elif isinstance(right[key][name], str) and name in ("nda", "ndt"):
                made[key[0], name] = dt.date(2020, 2, 3) if name == "nda" else UNIX_ZERO
    return made


def of_topic(server: str, name: str, ids: set[int]) -> Differences:
    """Further differences of a topic: a snapshot and the stream write some values differently."""
    long_document = '{"a":[1,null,"x"],"b":1.5,"long_name":{"n":12345678901234567890}}'
    made: Differences = {
        (12, "f"): struct.unpack("<f", struct.pack("<f", 3.4028235e38))[0],
        (12, "en"): r"x\,y",
    }
    if server == "mysql":
        made |= {(5, "yr"): 2000, (15, "yr"): 1900, (11, "js"): long_document}
    if name == "plain" and server == "mysql":
        made[1, "js"] = long_document  # an UPDATE of another column
    elif name not in ("plain", "avro") or (server, name) == ("mysql", "avro"):
        made[1, "vc"] = "vc ü"  # its topic ends before the UPDATE
    if name == "set":
        made[2, "t1"] = True  # of 9
    if name == "conn":
        made |= {
            (1, "dt6"): dt.datetime(2026, 1, 31, 12, 34, 56, 789_000, dt.UTC),
            (2, "dt6"): dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, dt.UTC),
            (3, "dt6"): dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC),
            (1, "tm0"): 45_296_000,
            **{(1, each): 45_296_789 for each in TIMES[1:]},
        }
    if name == "iso":
        texts = ("12:34:56Z", "12:34:56.789Z", "12:34:56.789012Z")
        made |= {(1, each): text for each, text in zip(TIMES, texts, strict=True)} | {(5, "tm0"): "00:00:00Z"}
    if name in ("conn", "iso"):
        made |= {(number, each): None for number in (2, 3) for each in TIMES}  # beyond 24 hours
    return {(number, column): value for (number, column), value in made.items() if number in ids}


@pytest.mark.parametrize("name", TOPICS)
@pytest.mark.parametrize("server", SERVERS)
def test_every_type_is_the_servers(server: str, name: str) -> None:
    topic = TOPICS[name]
    table = server_table("types", without=topic.without, **topic.over)
    records = topic.records(server, "types")
    found, right = folded(records, topic.format_of(server), table), server_rows(server, table)
    assert found
    ids = {key[0] for key in found}
    expected = of_zero_dates(server, found, right) | of_topic(server, name, ids)
    assert differences(found, right) == expected
    columns_agree(records, topic.format_of(server), table)


@pytest.mark.parametrize("name", TOPICS)
@pytest.mark.parametrize("server", SERVERS)
def test_a_wrapped_key_is_the_servers(server: str, name: str) -> None:
    topic = TOPICS[name]
    has_unit = {"at": MICROS} if name == "plain" else {}
    table = server_table("bigkey", id=topic.over["biu"], **has_unit)
    records = topic.records(server, "bigkey")
    found = folded(records, topic.format_of(server), table)
    at = dt.datetime(2026, 1, 31, 12, 34, 56, 789_000 if name == "conn" else 789_012, dt.UTC)
    assert (BIG, at) in found
    if name == "plain":
        assert found == server_rows(server, table)
    if name == "avro":
        assert differences(found, server_rows(server, table)) == {}
    columns_agree(records, topic.format_of(server), table)


def test_a_table_that_was_read_again_after_its_changes_is_the_servers() -> None:
    table = server_table("orders", placed=MICROS)
    plain = TOPICS["plain"]
    found = folded(plain.records("mariadb", "orders"), plain.reads, table)
    assert found == server_rows("mariadb", table)


def test_the_scale_of_rows_from_before_its_change_is_not_in_records_without_schemas() -> None:
    table = server_table("orders", placed=MICROS)
    plain = TOPICS["plain"]
    found, right = folded(plain.records("mysql", "orders"), plain.reads, table), server_rows("mysql", table)
    older = {key for key in found if found[key] != right[key]}
    assert older == {("EU", 1), ("EU", 2), ("US", 2), ("US", 13)}
    assert len(found) == 8
    for key in older:
        assert found[key]["amount"] == right[key]["amount"] / 100


@pytest.mark.parametrize("name", ["schemas", "avro"])
@pytest.mark.parametrize("server", SERVERS)
def test_schemas_of_records_tell_every_scale_and_unit(server: str, name: str) -> None:
    """Columns that came later, with a default, and one under another name are left."""
    table = server_table("orders")
    topic = TOPICS[name]
    records = topic.records(server, "orders")
    found, right = folded(records, topic.format_of(server), table), server_rows(server, table)
    known = {key: row for key, row in found.items() if key in right}
    names = {name for _, name in differences(known, right)}
    assert known
    assert names <= {"qty", "remark", "status"}
    columns_agree(records, topic.format_of(server), table)


@pytest.mark.parametrize("server", SERVERS)
def test_units_of_the_default_mode_that_are_not_by_column_are_refused_where_schemas_tell(server: str) -> None:
    table = server_table("types", biu=WRAPPED)
    framed = [each for each in TOPICS["schemas"].records(server, "types") if each.value]
    with pytest.raises(InputError) as caught:
        folded(framed, DEFAULT, table)
    assert caught.value.code is Code.SCHEMA_INCOMPATIBLE
    for over in ({"biu": PRECISE}, {"dec4": {"type": "decimal(20,4)", "decimal": "string"}}):
        with pytest.raises(InputError) as caught:
            folded(framed, FRAMED, server_table("types", **{"biu": WRAPPED, **over}))
        assert caught.value.code is Code.SCHEMA_INCOMPATIBLE


@pytest.mark.parametrize(("name", "column"), [("types", "biu"), ("bigkey", "id")])
@pytest.mark.parametrize("server", SERVERS)
def test_a_number_that_is_not_said_to_be_wrapped_is_no_decimal(server: str, name: str, column: str) -> None:
    topic = TOPICS["avro"]
    table = server_table(name, without=topic.without)
    with pytest.raises(InputError) as caught:
        folded(topic.records(server, name), topic.format_of(server), table)
    assert caught.value.code is Code.SCHEMA_INCOMPATIBLE
    assert f"field {column} is long" in caught.value.found


def columns_agree(records: list[Recorded], format_: DebeziumFormat, table: TableSchema) -> None:
    """Check that most records are read by the fast way, and as the other one reads them."""
    is_object = any(column.name == "ge" and column.type.name is TypeName.STRING for column in table.columns)
    taken = sum(agree(format_, table, [(record.key, record.value)]) for record in records)
    assert taken > len(records) // 2 or is_object  # an object as the text of a column is left to the other
