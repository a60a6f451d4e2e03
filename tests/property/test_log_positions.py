"""Positions by whole columns are those of each source by itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec.log_positions import positions_in, source_positions
from schemas.codec.logs import LONG_MAX, NUMBERS, TEXTS, LogId, LogPosition
from tests.kit.log_positions import log_position, position_column
from tests.kit.values import examples

CHOICES: dict[str, list[Any]] = {
    "connector": ["postgresql", "mysql", "mariadb", "sqlserver", "oracle", None],
    "name": ["a", "b", "", None],
    "db": ["x", "y", None],
    "snapshot": ["false", "false", "false", None, "", "true", "first", "last", "incremental"],
    "sequence": ['["1","2"]', f'["{LONG_MAX}","2"]', '[null,"3"]', '["1","2"] ', "x", None],
    "file": ["bin.000002", "b.in.1000000", "b\nin.3", "bin", "bin.", "bin.1x", None],
    "gtid": ["a-b-c:5", "a-b:tag:7", "0-1-105", "0-2-101", "a:b-7", "0-1-", "x", "", None],
    "commit_lsn": ["00000027:00000ac0:0002", "ffffFFFF:ffffffff:ffff", "0027:1:2", "", None],
    "change_lsn": ["00000027:00000ac0:0003", "00000028:00000000:0000", None],
    "lsn": [5, 0, -1, LONG_MAX, None],
    "pos": [4, 0, -1, None],
    "row": [0, 1, None],
    "server_id": [0, 1, None],
    "event_serial_no": [1, 2, None],
    "ts_ms": [1, 0, -1, None],
}
SOURCES = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()})


@settings(max_examples=examples(200))
@given(st.lists(SOURCES, max_size=30))
def test_columns_have_the_positions_of_each_source(sources: list[dict[str, Any]]) -> None:
    columns = {
        name: pa.array([each[name] for each in sources], pa.string() if name in TEXTS else pa.int64())
        for name in (*TEXTS, *NUMBERS)
    }
    expected = [log_position(each) for each in sources]
    assert list(positions_in(source_positions(columns.__getitem__))) == expected
    assert list(positions_in(position_column(expected))) == expected


def test_a_number_beyond_64_bits_is_not_compared() -> None:
    source = dict.fromkeys((*TEXTS, *NUMBERS)) | {
        "connector": "postgresql",
        "sequence": '["9999999999999999999","1"]',
        "lsn": 1,
    }
    columns = {
        name: pa.array([value], pa.string() if name in TEXTS else pa.int64())
        for name, value in source.items()
    }
    assert log_position(source) is None
    assert list(positions_in(source_positions(columns.__getitem__))) == [None]


POSTGRES = {"connector": "postgresql", "name": "n", "db": "d", "sequence": '["5","7"]', "lsn": 7, "ts_ms": 9}
MYSQL = {
    "connector": "mysql",
    "name": "n",
    "db": "d",
    "file": "bin.000002",
    "pos": 4,
    "row": 1,
    "server_id": 3,
}
SQLSERVER = {
    "connector": "sqlserver",
    "name": "n",
    "db": "d",
    "commit_lsn": "00000001:00000002:0003",
    "change_lsn": "00000001:00000001:0001",
    "event_serial_no": 2,
}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (POSTGRES, LogPosition(LogId("postgresql", "n", "d"), (5, 7), 9)),
        (POSTGRES | {"snapshot": "last"}, LogPosition(LogId("postgresql", "n", "d"))),
        (POSTGRES | {"snapshot": "incremental"}, None),
        (POSTGRES | {"connector": "yugabytedb"}, None),
        (POSTGRES | {"lsn": None}, None),
        (MYSQL, LogPosition(LogId("mysql", "n", None, 3), (2, 4, 1))),
        (MYSQL | {"gtid": "u-u:7"}, LogPosition(LogId("mysql", "n", None, "u-u"), (7, 2, 4, 1))),
        (MYSQL | {"gtid": "u-u:tag:7"}, LogPosition(LogId("mysql", "n", None, "u-u:tag"), (7, 2, 4, 1))),
        (
            MYSQL | {"connector": "mariadb", "gtid": "0-1-105"},
            LogPosition(LogId("mysql", "n", None, "0-1"), (105, 2, 4, 1)),
        ),
        (MYSQL | {"gtid": "odd"}, None),
        (MYSQL | {"snapshot": "true", "server_id": 0}, LogPosition(LogId("mysql", "n", "d"))),
        (SQLSERVER, LogPosition(LogId("sqlserver", "n", "d"), (1, 0x20003, 1, 0x10001, 2))),
        (SQLSERVER | {"commit_lsn": None}, None),
        ({}, None),
    ],
)
def test_connectors_name_and_order_their_logs(source: dict[str, Any], expected: LogPosition | None) -> None:
    assert log_position(source) == expected
