"""Vnodes that are the upstream's partitions: no exchange, lanes that are tied to them; `verify` is the judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import DataFrame

from schemas.errors import Code, ConfigError, TopicError
from schemas.records import Add, Change, Op, Throttle
from state.values.progress import InProgress
from streaming.kafka.topics import admin
from streaming.source.kafka import UpstreamSource
from tests.kit.real import SetUp, records
from tests.kit.real_upstream import UpsertUpstream, churn, order

TABLE = {
    "name": "orders",
    "columns": {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "note": "string"},
    "primary_key": ["id"],
    "distribution": "upstream",
}
FORM: dict[str, Any] = {"output_partitions": None}
COPY = {"name": "copy", **FORM}
SOME = {"name": "some", **FORM, "columns": ["id", "note"], "filter": "amount >= 100", "format": "debezium"}
SOME["encoding"] = "json"
LOG = {"name": "log", **FORM, "read": "topic"}


def test_lanes_are_tied_to_the_partitions_until_all_is_complete_and_free_then(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[str] = []
    made = UpstreamSource.in_place

    def seen(self: UpstreamSource, *args: Any, **more: Any) -> tuple[DataFrame, Sequence[int]]:
        rows, places = made(self, *args, **more)
        plans.append(rows._jdf.queryExecution().executedPlan().toString())
        return rows, places

    monkeypatch.setattr(UpstreamSource, "in_place", seen)
    stage = set_up({**COPY, "rate_limit": 200}, SOME, {**LOG, "rate_limit": 300}, table=TABLE, partitions=4)
    for number in range(600):
        stage.upstream.put(order(number))
    stage.upstream.barrier()
    with stage.running(lanes=None, limits={"short_records": 0}) as run:
        run.reach(stage.upstream.barrier())
        churn(stage.upstream, 1)
        run.reach(stage.upstream.barrier())
        assert any(isinstance(each, InProgress) for each in run.reports[-1].progress["copy"].values())
        assert run.reports[-1].plan.lanes == 4
    error = stage.fails(ConfigError, Code.RESCALE_REFUSED, lanes=2)
    assert "job copy is not complete" in error.found
    stage.upstream.barrier(Throttle("copy", None))
    stage.upstream.barrier(Throttle("log", None))
    with stage.running(lanes=4) as run:
        while not all(map(run.is_complete, ("copy", "some", "log"))):
            churn(stage.upstream, 2)
            run.reach(stage.upstream.barrier())
        assert set(run.reports[-1].progress["copy"]) == {0, 1, 2, 3}
    late = {**COPY, "name": "late", "output": "late-output"}
    with stage.running(lanes=2) as run:
        churn(stage.upstream, 3)
        refused = run.reach(stage.upstream.barrier(Add(stage.config(jobs=[late]).jobs[0].to_json())))
        assert [each.refused for each in refused.outcome.reports] == [Code.RESCALE_REFUSED]
        assert run.reports[-1].plan.lanes == 2
    for number in range(3):
        report = stage.verify(number)
        assert report.clean, report
        assert report.parts == "partitions"
    assert not any("Exchange" in plan for plan in plans)
    assert "Union" not in plans[0], "one look at the topic for all lanes"
    sent = records(stage.upstream.kafka, stage.config().jobs[0].output)
    came = records(stage.upstream.kafka, stage.upstream.name)
    for output, upstream in zip(sent, came, strict=True):
        assert {each.key() for each in output} <= {each.key() for each in upstream}


def test_an_upstream_that_gains_partitions_and_lanes_that_do_not_divide_them_are_refused(
    set_up: SetUp,
) -> None:
    stage = set_up(COPY, table=TABLE, partitions=4)
    stage.upstream.put(order(1))
    stage.upstream.barrier()
    error = stage.fails(ConfigError, Code.CONFIG_INVALID, lanes=3)
    assert "3 lanes, 4 partitions" in error.found
    with stage.running(lanes=None) as run:
        stage.finish(run, "copy")
    client = admin(stage.upstream.kafka)
    for grown in client.create_partitions([NewPartitions(stage.upstream.name, 5)]).values():
        grown.result(30)
    found = stage.fails(TopicError, Code.PARTITIONS_CHANGED, lanes=None)
    assert found.found == "5 partitions"


def test_a_key_in_two_partitions_is_two_rows_and_verify_says_so(set_up: SetUp) -> None:
    stage = set_up({**COPY, "rate_limit": 20}, table=TABLE, partitions=2)
    upstream = stage.upstream
    for number in range(40):
        upstream.put(order(number))
    upstream.flush()
    for number in range(40):  # of each key one of the two is not its own
        upstream.change(Change(Op.INSERT, None, order(number, 1)), partition=number % 2)
    upstream.barrier()
    with stage.running(lanes=None) as run:
        stage.finish(run, "copy")
    report = stage.verify()
    codes = Code.KEY_IN_TWO_PARTITIONS, Code.INSERT_EXISTING_KEY
    assert set(report.counts) == {f"upstream.{code}" for code in codes}
    assert report.counts[f"upstream.{codes[0]}"] > 10


def test_rows_by_key_are_filtered_by_the_row_before_through_a_restart_with_fewer_lanes(set_up: SetUp) -> None:
    jobs = {**COPY, "filter": "amount >= 100", "format": "debezium", "encoding": "json"}
    stage = set_up(jobs, table=TABLE, partitions=2, upstream_type=UpsertUpstream)
    for number in range(200):
        stage.upstream.put(order(number))
    stage.upstream.barrier()
    for lanes in (None, 1):
        with stage.running(lanes=lanes) as run:
            run.reach(stage.upstream.barrier())
            for number in range(0, 200, 3):
                stage.upstream.put(order(number, lanes or 2))
            run.reach(stage.upstream.barrier())
            stage.finish(run, "copy")
    stage.assert_lawful()
