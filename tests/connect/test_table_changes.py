"""A table that changes under load, through Debezium: columns come, widen, are renamed and go."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.kinds.table_changes import RenameField, changes_text
from schemas.records import Alter
from streaming.cli.app import main
from tests.connect.conftest import ServedOf
from tests.connect.test_postgres_in import FRAMES
from tests.connect.test_registry_between import ADJUSTED
from tests.kit.apicurio import Apicurio
from tests.kit.connect.items import Load
from tests.kit.connect.served_table import ServedTable
from tests.kit.connect.worker import avro_by
from tests.kit.folded import fold_of

pytestmark = [pytest.mark.connect, pytest.mark.timeout(1_200)]
JOBS: tuple[dict[str, Any], ...] = (
    {"name": "some", "columns": ["id", "n", "price", "note"], "format": "upsert"},
    {"name": "events", "format": "debezium", "encoding": "json-schema", "new_columns": "send"},
    {"name": "framed", "format": "upsert", "encoding": "avro-registry", "new_columns": "send"},
)
NULLS = {"value.converter.replace.null.with.default": "false"}
"""Else the converter writes a column's default for each null."""


@pytest.mark.parametrize("is_avro", [False, True], ids=["frames", "registry"])
def test_a_table_changes_under_load_and_outputs_follow(
    served_of: ServedOf,
    registry: Apicurio,
    capsys: pytest.CaptureFixture[str],
    is_avro: bool,
) -> None:
    form = {"encoding": "avro-registry"} if is_avro else {"decimal": "precise", "time": "adaptive"}
    settings = {**avro_by(registry.url), **ADJUSTED} if is_avro else {**FRAMES, **NULLS}
    grows = {"format": "debezium", "on_new_column": "add", "on_wider_type": "widen", **form}
    table = served_of(grows, settings, {"registry": {"url": registry.url}}, *JOBS)
    with Load(table.server, table.source.name) as load:
        load.steps(300)
        table.source.begin()
        table.start()
        table.reach()
        # A column with a default, and a kill before its first record is read.
        table.sql("ALTER TABLE items ADD COLUMN tier integer DEFAULT 7")
        load.steps(100)
        table.kill()
        load.steps(100)
        table.start()
        table.reach()
        assert table.known.table.by_name["tier"].fill == 7
        # Wider types.
        wider = ("n", "bigint"), ("price", "numeric(14,2)")
        table.sql(f"ALTER TABLE items {', '.join(table.server.widened(*each) for each in wider)}")
        load.steps(200)
        table.reach()
        assert str(table.known.table.by_name["n"].type) == "bigint"
        # Another name, and a column that is dropped.
        if not is_avro:  # where it would be a new column by itself
            table.stage.upstream.barrier(Alter(changes_text([RenameField("note", "title")])))
            table.reach()
        table.sql("ALTER TABLE items RENAME COLUMN note TO title")
        load.steps(100)
        if is_avro:
            table.leads_on("--rename", "note=title")
        table.reach()
        table.sql("ALTER TABLE items DROP COLUMN legacy")
        load.steps(100)
        table.leads_on("--retire", "legacy")
        table.kill()
        table.start()
        load.steps(100)
        table.reach()
    table.reach()
    is_what_the_database_has(table, is_avro=is_avro)
    capsys.readouterr()
    assert main(["verify", "--config", str(table.file)]) == 0, capsys.readouterr()


def is_what_the_database_has(table: ServedTable, *, is_avro: bool) -> None:
    """The outputs, but for the column that the database has no more."""
    with table.server.connect(table.source.name) as session:
        # Apicurio's converter has no way to keep a null of a column with a default.
        tier = "coalesce(tier, 7)" if is_avro else "tier"
        rows = session.execute(f"SELECT id, n, price, title, {tier} FROM items").fetchall()  # noqa: S608
    wanted, known, kafka = {row[:1]: row for row in rows}, table.known, table.stage.upstream.kafka
    assert known.table.column_names == ("id", "n", "price", "note", "legacy", "tier")
    some, *others = (fold_of(known, kafka, number)[0] for number in range(3))
    assert some == {key: row[:4] for key, row in wanted.items()}
    for fold in others:
        assert {key: (*row[:4], row[5]) for key, row in fold.items()} == wanted
