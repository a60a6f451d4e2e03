"""Outputs whose barriers stand beside them: written once through restarts, read at a cut, compacted, read again."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.records import EPOCH_HEADER
from streaming.kafka.consumer import header_of
from streaming.kafka.topics import topic_settings
from tests.kit.folded import folded
from tests.kit.real import SetUp, Stage, records
from tests.kit.real_upstream import RealUpstream, UpsertUpstream, version_of
from tests.kit.thorough import pairs

FORMS: dict[str, dict[str, Any]] = {
    "change": {},
    "upsert": {"format": "upsert"},
    "debezium": {"format": "debezium"},
    "json-schema": {"format": "debezium", "encoding": "json-schema", "tombstones": False},
}
UPSTREAMS = {"full images": RealUpstream, "no rows before": UpsertUpstream}
pytestmark = pytest.mark.parametrize(("upstream_type", "form"), pairs(UPSTREAMS, FORMS))


@pytest.fixture
def stage(set_up: SetUp, upstream_type: type[RealUpstream], form: dict[str, Any]) -> Stage:
    stage = set_up({"name": "copy", "rate_limit": 400, **form}, upstream_type=upstream_type)
    name = f"{stage.upstream.name}-copy"
    stage.jobs = [{**stage.jobs[0], "output": name, "barrier_topic": f"{name}.barriers"}]
    return stage


def test_a_table_goes_out_once_through_restarts_and_can_be_read_at_each_barrier(stage: Stage) -> None:
    upstream = stage.upstream
    for number in range(900):
        upstream.put(version_of(number))
    with stage.running() as run:
        run.reach(upstream.barrier())
        upstream.put(version_of(3, 1))
        run.reach(upstream.barrier())
    upstream.put(version_of(899, 2))
    upstream.delete(5)
    upstream.barrier()
    with stage.running() as run:
        while not run.is_complete("copy"):
            upstream.put(version_of(1_000 + len(run.reports)))
            run.reach(upstream.barrier())
        before = folded(stage)
        cut = run.epoch
        upstream.put(version_of(4, 7))
        upstream.delete(6)
        run.reach(upstream.barrier())
        run.reach(upstream.barrier())  # nothing came before it
    assert stage.verify().clean
    assert folded(stage, cut) == before
    after = folded(stage)
    assert (after.keys() ^ before.keys(), after[(4,)]) == ({(6,)}, version_of(4, 7))
    messages = [message for part in records(upstream.kafka, stage.jobs[0]["output"]) for message in part]
    assert all(header_of(message, EPOCH_HEADER) for message in messages)
    assert all(message.key() is not None for message in messages)


def test_an_output_may_be_compacted(stage: Stage) -> None:
    stage.jobs = [{**stage.jobs[0], "topic_config": {"cleanup.policy": "compact"}}]
    upstream = stage.upstream
    upstream.put(version_of(1))
    with stage.running() as run:
        stage.finish(run, "copy")
        upstream.put(version_of(1, 1))
        run.reach(upstream.barrier())
    definition = stage.config().jobs[0]
    assert topic_settings(upstream.kafka, definition.output)["cleanup.policy"] == "compact"
    assert topic_settings(upstream.kafka, definition.with_barriers)["cleanup.policy"] == "delete"
    assert folded(stage) == {(1,): version_of(1, 1)}


READ_AS: dict[str, dict[str, Any]] = {
    "change": {"format": "change"},
    "upsert": {"format": "upsert", "encoding": "json"},
    "debezium": {"format": "debezium", "time": "isostring", "decimal": "string"},
    "json-schema": {"format": "debezium", "time": "adaptive", "decimal": "precise"},
}


def cascade(first: Stage, second: Stage) -> None:
    """Run both until the job `again` of the second is complete, which reads the job `copy` of the first."""
    for number in range(300):
        first.upstream.put(version_of(number, number % 9))
    with first.running() as run:
        run.reach(first.upstream.barrier())
        run.reach(first.upstream.barrier())  # the second batch is the one that opens the output
        with second.running() as cascaded:
            cascaded.reach(first.upstream.barrier())
        first.upstream.delete(7)
        first.finish(run, "copy")
        with second.running() as cascaded:  # as after a kill
            while not cascaded.is_complete("again"):
                first.upstream.put(version_of(4, cascaded.epoch % 9))
                cascaded.reach(first.upstream.barrier())


def test_an_output_is_the_upstream_of_a_second_service(
    stage: Stage, set_up: SetUp, form: dict[str, Any]
) -> None:
    first = stage
    output = first.jobs[0]["output"]
    read_as = READ_AS[form.get("encoding", form.get("format", "change"))]
    second = set_up({"name": "again", "format": "debezium", "filter": "note <> 'n7'"}, partitions=4)
    second.upstream.name = output
    over = {
        "upstream": {"topic": output, **read_as},
        "barrier_topic": first.jobs[0]["barrier_topic"],
        "control_topic": f"{output}.control",
    }
    second.upstream.sections = over
    cascade(first, second)
    assert first.verify().clean
    report = second.verify()
    assert report.clean, report
    assert report.snapshot_rows > 0
