"""A Debezium topic goes out as the changelog that it amounts to, though it repeats itself and leaves values out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from schemas.errors import Code, InputError
from schemas.records import Op
from state.replica import Replica
from state.storage import Storage
from streaming.protocol.lanes.attempts import transactional_id
from streaming.registry.client import AskedSchemas, Registry
from tests.kit.debezium import AvroDebeziumUpstream, DebeziumUpstream, WholeDebeziumUpstream
from tests.kit.kafka_topics import remove_beginning
from tests.kit.real import SetUp, Stage, records
from tests.kit.real_upstream import order
from tests.kit.registry import FakeRegistry

COPY = {"name": "copy"}
FILTERED = {"name": "some", "columns": ["note"], "filter": "amount >= 100", "rate_limit": 300}


def stir(upstream: DebeziumUpstream, version: int) -> None:
    for number in range(0, 300, 7):
        upstream.put(order(number, version))
    for number in range(version, 300, 31):
        if (number,) in upstream.rows:
            upstream.delete(number)
    for number in range(3, 300, 11):
        if (number,) in upstream.rows:
            upstream.put_without_note(order(number, version + 1))
    upstream.again(25)


def stage_of(
    set_up: SetUp, *jobs: dict[str, Any], upstream_type: type[DebeziumUpstream] = DebeziumUpstream
) -> tuple[Stage, DebeziumUpstream]:
    stage = set_up(*jobs, upstream_type=upstream_type)
    assert isinstance(stage.upstream, DebeziumUpstream)
    return stage, stage.upstream


def test_a_connectors_topic_goes_out_as_the_changelog_that_it_amounts_to(set_up: SetUp) -> None:
    stage, upstream = stage_of(set_up, COPY, FILTERED)
    for number in range(300):
        upstream.put(order(number))
    stir(upstream, 1)
    upstream.barrier()
    with stage.running() as run:
        run.reach(upstream.barrier())
        stir(upstream, 2)
        run.reach(upstream.barrier())
        upstream.again(10)  # what the batch before has seen
        assert run.reach(upstream.barrier()).redelivered > 0
    upstream.again(40)  # and a service before this one
    stir(upstream, 3)
    upstream.barrier()
    stage.lanes = 4
    with stage.running() as run:
        for version in range(4, 6):
            stir(upstream, version)
            run.reach(upstream.barrier())
        stage.finish(run, "some")
    stage.assert_lawful()
    assert folded(stage) == upstream.rows
    assert row_stores(stage)


def test_a_restart_knows_what_was_seen_though_nothing_of_it_is_there(set_up: SetUp) -> None:
    """Retention has taken the last batch: nothing is lost, and what the connector repeats is known all the same."""
    stage, upstream = stage_of(set_up, COPY)
    for number in range(300):
        upstream.put(order(number))
    with stage.running() as run:
        stage.finish(run, "copy")
        stir(upstream, 1)
        run.reach(upstream.barrier())
    for lanes in (4, 2):
        for partition in range(upstream.partitions):
            remove_beginning(upstream.kafka.bootstrap, upstream.name, -1, partition=partition)
        repeated = upstream.again(40)
        barrier = upstream.barrier()
        stage.lanes = lanes
        with stage.running() as run:
            report = run.reach(barrier)
            assert (report.redelivered, any(report.sent_live.values())) == (repeated, False)
            stir(upstream, lanes)
            run.reach(upstream.barrier())
    assert folded(stage) == upstream.rows


def test_so_does_one_in_avro_whose_schema_changes(set_up: SetUp) -> None:
    with FakeRegistry().serving() as registry:
        stage, upstream = stage_of(set_up, COPY, FILTERED, upstream_type=AvroDebeziumUpstream)
        assert isinstance(upstream, AvroDebeziumUpstream)
        upstream.attach(registry)
        for number in range(300):
            upstream.put(order(number))
        with stage.running() as run:
            run.reach(upstream.barrier())
            stir(upstream, 1)
            upstream.more = ("x",)
            stir(upstream, 2)
            run.reach(upstream.barrier())
            stage.finish(run, "some")
        config = stage.config()
        asked = config.upstream_format.with_schemas(AskedSchemas(Registry(config.registry)))
        for number, job in enumerate(config.jobs):
            assert stage.verify(number, formats=(asked, job.format)).clean
        assert folded(stage) == upstream.rows
        assert len(registry.schemas) == 3


def test_whole_rows_before_are_those_of_the_events(set_up: SetUp) -> None:
    stage, upstream = stage_of(set_up, COPY, FILTERED, upstream_type=WholeDebeziumUpstream)
    for number in range(300):
        upstream.put(order(number))
    with stage.running() as run:
        for version in (1, 2):
            for number in range(0, 300, 7):
                upstream.put(order(number, version))
            for number in range(version, 300, 31):
                upstream.delete(number)
            upstream.again(25)
            run.reach(upstream.barrier())
            upstream.again(1)  # at the very place where the batch ended
            assert run.reach(upstream.barrier()).redelivered > 0
        stage.finish(run, "some")
    stage.assert_lawful()
    assert folded(stage) == upstream.rows
    assert not row_stores(stage)


def row_stores(stage: Stage) -> list[Path]:
    """The folders in which lanes of this state keep rows by key."""
    state = Storage(str(stage.folder / "state"))
    lanes = transactional_id(Replica(state, stage.upstream.table))
    return list(Path(tempfile.gettempdir(), f"{lanes}-rows").glob("*"))


def folded(stage: Stage) -> dict[object, object]:
    """The table that the first job's output amounts to, as a plain reader folds it."""
    codec, rows = stage.upstream.changes, dict[object, object]()
    output = stage.config().jobs[0].output
    for message in (message for part in records(stage.upstream.kafka, output) for message in part):
        if message.key() is None:
            continue
        change = codec.decode(message.value() or b"")
        key = stage.upstream.table.key_of(change.row)
        assert (change.op is Op.INSERT) == (key not in rows)
        assert change.before == rows.get(key)
        rows[key] = change.after
        if change.after is None:
            del rows[key]
    return rows


def test_values_that_are_left_out_are_filled_in_before_any_job_asks_for_them(set_up: SetUp) -> None:
    stage, upstream = stage_of(set_up)
    for number in range(40):
        upstream.put(order(number))
        upstream.put_without_note(order(number, 1))
    with stage.running() as run:
        run.reach(upstream.barrier())
        for number in range(0, 40, 3):
            upstream.put_without_note(order(number, 2))
        run.reach(upstream.barrier())
    stage.jobs = [{"name": "copy", "output": f"copy-{upstream.name}", "output_partitions": 4}]
    with stage.running() as run:
        run.reach(upstream.barrier())
        stage.finish(run, "copy")
    assert stage.verify().clean
    assert folded(stage) == upstream.rows


def test_what_has_no_answer_stops_it_with_its_place(set_up: SetUp) -> None:
    stage, upstream = stage_of(set_up, COPY)
    upstream.put(order(1))
    upstream.flush()
    truncate = upstream.send(0, None, upstream.envelope("t", None))
    upstream.barrier()
    upstream.say_without_note(order(2))
    upstream.barrier()
    stage.fails(InputError, Code.TRUNCATE_UNSUPPORTED, f"{upstream.name}-0@{truncate}")
    error = stage.fails(InputError, Code.TOAST_UNAVAILABLE, skip=frozenset({(0, truncate)}))
    assert "column note" in str(error)
