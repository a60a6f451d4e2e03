"""Outputs into a second database by Debezium's JDBC sink: at the end the tables are what the upstream adds up to."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.epoch import NO_EPOCH, next_epoch
from schemas.position import Key
from schemas.records import Change, Row
from schemas.settings.config import ServiceConfig, check
from streaming.control.known_table import as_known
from streaming.kafka.clients import KafkaSettings
from streaming.reading.records.forms import CHANGE_FORM
from streaming.reading.topic import GrowingTopic, RecordStream, TableFold
from tests.bench.rig import TABLE
from tests.connect.conftest import Circle
from tests.connect.test_postgres_in import FORMS
from tests.kit.connect import orders
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.sink import Sink
from tests.kit.connect.worker import Connect, avro_by
from tests.kit.folded import epoch_of, fold_of
from tests.kit.kill_scenario import KillScenario
from tests.kit.real import await_condition

pytestmark = [pytest.mark.connect, pytest.mark.timeout(1_200)]
CircleOf = Callable[..., Circle]
EVENTS = {"name": "events", "format": "debezium", "encoding": "json-schema"}
ROWS = {"name": "rows", "format": "upsert", "encoding": "json-schema"}
MOVED = {
    "name": "moved",
    "format": "upsert",
    "key": ["ok", *orders.KEY],
    "columns": [{"text": "note"}, "amount"],
}
SIMPLE = {"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}
"""Connect's own, which guesses a type from the text of a header."""


def upstream_of(scenario: KillScenario) -> dict[Key, Row]:
    """The totals of the upstream."""
    fold = TableFold()
    stream = RecordStream(TABLE.columns, TABLE.key_columns, CHANGE_FORM)
    with GrowingTopic(scenario.kafka, scenario.upstream, None, stream) as topic:
        for record in topic.new():
            if record.key is not None and isinstance(record.body, Change):
                fold.apply(record.key, record.body, record.where)
    return fold.rows


def config_of(scenario: KillScenario) -> ServiceConfig:
    path = scenario.folder / "config.json"
    return check(json.loads(path.read_text(encoding="utf-8")), path=path)


def catches_up(scenario: KillScenario, config: ServiceConfig) -> None:
    """Wait until all outputs are complete, and at a barrier that is younger than this call."""
    now = next_epoch(NO_EPOCH, int(time.time() * 1_000))
    for number in range(len(config.jobs)):
        await_condition(
            lambda number=number: epoch_of(config, scenario.kafka, number) > now,  # type: ignore[misc]
            "an output that has caught up",
        )
    await_condition(
        lambda: all(
            len(fold_of(config, scenario.kafka, number)[1].finished) == TABLE.vnode_count
            for number in range(len(config.jobs))
        ),
        "complete outputs",
    )


@pytest.mark.parametrize("rows", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_tables_are_kept_through_kills_of_the_service_and_of_connect(
    postgres: Postgres, connect: Connect, bootstrap: str, tmp_path: Path, rows: int
) -> None:
    kafka, database = KafkaSettings(bootstrap), f"out{uuid.uuid4().hex[:8]}"
    postgres.create(database)
    scenario = KillScenario(kafka, tmp_path, rows=rows, rate_limit=rows // 5, live_rate=rows // 400)
    names = {job["name"]: f"{job['name']}_{database}" for job in (EVENTS, ROWS)}
    for job in (EVENTS, ROWS):
        scenario.declare_job({**job, "output": names[job["name"]], "rate_limit": rows // 5})
    config = config_of(scenario)
    sinks = [
        Sink(connect, postgres, database, name, name, SIMPLE if job == "rows" else {})
        for job, name in names.items()
    ]
    try:
        with scenario.live():
            scenario.killed_when(lambda: epoch_of(config, kafka, 2) > 0, "the first rows")
            for sink in sinks:
                sink.begin()
            process = scenario.recovers(until_complete=False)
            await_condition(lambda: all(sink.count() > rows // 4 for sink in sinks), "rows in both tables")
            connect.kill()
            process.kill()
            connect.start()
            process = scenario.recovers(until_complete=False)
            connect.await_ready()
        catches_up(scenario, config)
        assert process.end(signal.SIGTERM) == 0
        expected = upstream_of(scenario)
        assert len(expected) > rows // 2
        for sink in sinks:
            sink.await_all(kafka)
            assert sink.differences(TABLE.column_names, expected.values()) == (0, 0)
    finally:
        scenario.leave_nothing()
        for sink in sinks:
            sink.end()


def test_a_sink_does_not_take_records_of_this_projects_own_format(
    postgres: Postgres, connect: Connect, circle_of: CircleOf
) -> None:
    upstream, settings = FORMS["plain"]
    circle = circle_of({"format": "debezium", "decimal": "precise", **upstream}, settings, {"name": "copy"})
    circle.writers.write(50)
    circle.source.begin()
    circle.barrier()
    with circle.stage.running() as run:
        run.reach(circle.barrier())
    sink = Sink(
        connect, postgres, circle.database, f"copy_{circle.database}", circle.stage.jobs[0]["output"], {}
    )
    sink.begin()
    try:
        await_condition(lambda: connect.state(sink.name) == "FAILED", "a sink that fails")
        # A barrier is the first record, and neither its value nor that of a change is JSON.
        assert "DataException: Converting byte[] to Kafka Connect data failed" in connect.failure(sink.name)
        assert sink.count() == 0
    finally:
        sink.end()


@pytest.mark.parametrize("encoding", ["json-schema", "avro-registry"])
def test_from_one_database_into_another(
    circle_of: CircleOf, encoding: str, request: pytest.FixtureRequest
) -> None:
    """All types, a filter and columns, both forms, keys that change; a table is what the SELECT says.

    Also by another key, of which one column changes while rows live. One job has the column that is added: its sink
    adds it to its table.
    """
    upstream, settings = FORMS["schemas"]
    columns, moving = [*orders.KEY, *orders.NARROW], ("ok", "note", "amount")
    grown = (*orders.NAMES, "further")
    jobs: list[dict[str, Any]] = [
        {**EVENTS, "filter": orders.FILTER, "encoding": encoding, "new_columns": "send"},
        {**ROWS, "columns": columns, "rate_limit": 1_000, "encoding": encoding},
        {**MOVED, "rate_limit": 1_000, "encoding": encoding},
    ]
    sections, converters = dict[str, Any](), dict[str, str]()
    if encoding == "avro-registry":
        url = request.getfixturevalue("registry").url
        sections, converters = {"registry": {"url": url}}, avro_by(url)
    read_as = {"format": "debezium", "decimal": "precise", "on_new_column": "add", **upstream}
    circle = circle_of(read_as, settings, *jobs, seed=5, sections=sections)
    postgres, stage, kafka = circle.postgres, circle.stage, circle.stage.upstream.kafka
    target = f"{circle.database}_target"
    postgres.create(target)
    sinks = [
        Sink(circle.connect, postgres, target, f"{job['name']}_{target}", job["output"], converters)
        for job in stage.jobs
    ]
    circle.writers.write(400)
    circle.source.begin()
    try:
        with stage.running() as run:
            run.reach(circle.barrier())
            for sink in sinks:
                sink.begin()
            while not all(run.is_complete(job["name"]) for job in jobs):
                circle.writers.write(100)
                run.reach(circle.barrier())
            circle.identity("FULL")
            circle.writers.write(400)
            run.reach(circle.barrier())
            circle.execute("ALTER TABLE orders ADD COLUMN further integer")
            circle.execute("UPDATE orders SET further = id WHERE ok")
            circle.writers.write(100)
            run.reach(circle.barrier())
        wholly = orders.read(postgres, circle.database, grown, orders.FILTER)
        narrowly, moved = (orders.read(postgres, circle.database, names) for names in (columns, moving))
        assert orders.comparable(fold_of(as_known(stage.config()), kafka, 0)[0]) == orders.comparable(wholly)
        if encoding == "json-schema":
            wholly, narrowly, moved = map(orders.through_json, (wholly, narrowly, moved))
        shown = (grown, wholly), (columns, narrowly), (("ok", "text", "amount"), moved)
        for sink, (names, rows) in zip(sinks, shown, strict=True):
            sink.await_all(kafka)
            assert sink.differences(names, rows.values()) == (0, 0)
    finally:
        for sink in sinks:
            sink.end()
