"""Recorded topics of MariaDB's and MySQL's connectors in Avro fold to the rows that the servers had in the end."""

from __future__ import annotations

import pytest

from schemas.errors import Code, InputError
from schemas.formats.debezium import DebeziumFormat
from tests.kit.debezium import Recorded, recorded, recorded_schemas
from tests.kit.servers import SERVERS, folded, server_rows, server_table
from tests.unit.test_server_tables import (
    BIG,
    WRAPPED,
    columns_agree,
    differences,
    of_topic,
    of_zero_dates,
)

GEOMETRY = ("ge",)
"""Is a record in Avro, which no column has."""


def format_of(server: str) -> DebeziumFormat:
    return DebeziumFormat(encoding="avro-registry").with_schemas(recorded_schemas(server))


def records(server: str, table: str) -> list[Recorded]:
    return [each for each in recorded("avro", server) if each.topic == f"{server[:2]}avro.shop.{table}"]


@pytest.mark.parametrize("server", SERVERS)
def test_every_type_is_the_servers(server: str) -> None:
    table = server_table("types", without=GEOMETRY, biu=WRAPPED)
    found, right = folded(records(server, "types"), format_of(server), table), server_rows(server, table)
    assert found
    form = "plain" if server == "mariadb" else "avro"  # MySQL's is without the UPDATE
    expected = of_zero_dates(server, found, right) | of_topic(server, form, {key[0] for key in found})
    assert differences(found, right) == expected
    columns_agree(records(server, "types"), format_of(server), table)


@pytest.mark.parametrize("server", SERVERS)
def test_a_wrapped_key_is_the_servers(server: str) -> None:
    table = server_table("bigkey", id=WRAPPED)
    found = folded(records(server, "bigkey"), format_of(server), table)
    assert BIG in {key[0] for key in found}
    assert differences(found, server_rows(server, table)) == {}
    columns_agree(records(server, "bigkey"), format_of(server), table)


@pytest.mark.parametrize("server", SERVERS)
def test_schemas_of_every_version_tell_scale_and_unit(server: str) -> None:
    """What is left are columns that came later, with a default, and one under another name."""
    table = server_table("orders")
    found = folded(records(server, "orders"), format_of(server), table)
    right = server_rows(server, table)
    known = {key: row for key, row in found.items() if key in right}
    assert known
    assert {name for _, name in differences(known, right)} <= {"qty", "remark", "status"}
    columns_agree(records(server, "orders"), format_of(server), table)


@pytest.mark.parametrize("server", SERVERS)
def test_a_number_that_is_not_said_to_be_wrapped_is_no_decimal(server: str) -> None:
    for name, column in (("types", "biu"), ("bigkey", "id")):
        with pytest.raises(InputError) as caught:
            folded(records(server, name), format_of(server), server_table(name, without=GEOMETRY))
        assert caught.value.code is Code.SCHEMA_INCOMPATIBLE
        assert f"field {column} is long" in caught.value.found
