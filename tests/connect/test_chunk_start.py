"""A copy as the configuration has it, checked against a real connector."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from schemas.errors import BackfillError, Code
from schemas.formats.debezium import DebeziumFormat
from schemas.kinds.initial import PostgresStart
from schemas.table import declare
from streaming.postgres.start import begin
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.source import Source
from tests.kit.connect.table import Database
from tests.kit.connect.worker import Connect

pytestmark = [pytest.mark.connect, pytest.mark.timeout(600)]


def test_a_copy_begins_as_the_configuration_and_the_connector_have_it(
    connect: Connect, postgres: Postgres, tmp_path: Path
) -> None:
    name = f"b{uuid.uuid4().hex[:8]}"
    postgres.create(name, "CREATE TABLE orders (id int PRIMARY KEY, at timestamp)")
    database = Database(postgres, name, tmp_path)
    database.execute("INSERT INTO orders SELECT i, now() FROM generate_series(1, 90) i", "ANALYZE orders")
    settings = {"snapshot.mode": "no_data", "time.precision.mode": "connect"}
    source = Source(connect, postgres, name, "public.orders", settings)
    table = declare({"name": "orders", "columns": {"id": "int", "at": "timestamp"}, "primary_key": ["id"]})
    avro = DebeziumFormat.model_validate({"encoding": "avro-registry"})
    assert database.access.dsn.file is not None
    start = PostgresStart.model_validate(
        {
            "dsn_file": str(database.access.dsn.file),
            "table": "public.orders",
            "slot": name,
            "readers": 3,
            "connector_url": connect.url_of(name),
        }
    )
    with pytest.raises(BackfillError) as refused:
        begin(start, table, avro)
    assert refused.value.code is Code.CONNECTOR_UNREACHABLE
    source.begin()
    try:
        begun = begin(start, table, avro)
        with pytest.raises(BackfillError) as refused:
            begin(start, table, DebeziumFormat.model_validate({"time": "microseconds"}))
        assert refused.value.code is Code.CONNECTOR_MISFIT
        # Without the connector's word the unit of its times is not known.
        with pytest.raises(BackfillError) as refused:
            begin(start.model_copy(update={"connector_url": None}), table, avro)
        assert refused.value.code is Code.POSTGRES_TABLE_MISFIT
    finally:
        source.end()
    assert (begun.declared.forms.time, begun.declared.publication) == ("connect", name)
    assert (begun.identity.database, len(begun.survey.ranges), begun.survey.rows) == (name, 3, 90)
