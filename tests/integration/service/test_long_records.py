"""Records that become longer on their way out: outputs are made for them; one that takes less stops no other job."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from schemas.errors import Code, InputError
from schemas.records import Resume
from streaming.kafka.consumer import header_of
from streaming.kafka.topics import create_topic
from streaming.sink.dead_letters import CODE_HEADER
from tests.kit.folded import folded
from tests.kit.kafka_topics import set_topic
from tests.kit.real import Run, SetUp, expected, records
from tests.kit.real_upstream import UpsertUpstream

FORMS: list[dict[str, Any]] = [
    {"name": "change"},
    {"name": "event", "format": "debezium"},
    {"name": "framed", "format": "debezium", "encoding": "json-schema"},
    {"name": "row", "format": "upsert"},
]
LIMIT = "1100000"


def row(number: int, note: str = "short") -> tuple[Any, ...]:
    return (number, "EU", Decimal(number), note)


def test_outputs_take_what_their_form_makes_of_a_legal_record(set_up: SetUp) -> None:
    """Control characters, of which JSON makes six bytes each; before and after; read as a row, and as a change."""
    stage = set_up(*FORMS)
    upstream = stage.upstream
    upstream.put(row(1, "\x01" * 480_000))
    upstream.put(row(2, "\x02" * 950_000))
    with stage.running() as run:
        stage.finish(run)
        upstream.put(row(1, "\x03" * 480_000))
        run.reach(upstream.barrier())
    stage.assert_lawful()


def test_a_row_that_an_upsert_replaces_is_sent_twice_as_long(set_up: SetUp) -> None:
    stage = set_up(*FORMS, upstream_type=UpsertUpstream)
    upstream = stage.upstream
    upstream.put(row(1, "a" * 900_000))
    with stage.running() as run:
        stage.finish(run)
        upstream.put(row(1, "b" * 900_000))
        run.reach(upstream.barrier())
    assert folded(stage) == upstream.rows
    stage.assert_lawful()


def test_a_change_that_an_output_does_not_take_stops_it_or_is_parked(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"}, {"name": "other"}, upstream_type=UpsertUpstream, partitions=1)
    upstream, output = stage.upstream, str(stage.jobs[0]["output"])
    create_topic(upstream.kafka, output, 4, config={"max.message.bytes": LIMIT})
    upstream.put(row(9, "a" * 600_000))
    with stage.running() as run:
        stage.finish(run, "copy", "other")
    kept = dict(upstream.rows)
    upstream.put(row(9, "b" * 600_000))
    upstream.put(row(3))
    end = upstream.barrier()
    error = stage.fails(InputError, Code.RECORD_TOO_LARGE, f"{upstream.name}-0@1")
    assert output in error.found
    with stage.running(on_bad_record="park") as run:
        run.reach(end)
        assert folded(stage) == {**upstream.rows, (9,): kept[9,]} == folded(stage, number=1)
        upstream.put(row(9, "c"))  # the row before it is the one that is there
        run.reach(upstream.barrier())
    assert folded(stage) == upstream.rows == folded(stage, number=1)
    for job in stage.jobs:
        ((letter,),) = records(upstream.kafka, f"{job['output']}.dead-letters")
        assert header_of(letter, CODE_HEADER) == Code.RECORD_TOO_LARGE.encode()
    stage.assert_lawful(siblings=[str(job["output"]) for job in stage.jobs])


def test_a_job_stands_before_a_row_that_its_output_does_not_take(set_up: SetUp) -> None:
    stage = set_up({"name": "copy", "format": "upsert"}, {"name": "other"})
    upstream, output = stage.upstream, str(stage.jobs[0]["output"])
    create_topic(upstream.kafka, output, 4, config={"max.message.bytes": LIMIT})
    for number in range(50):
        upstream.put(row(number))
    upstream.put(row(7, "\x01" * 400_000))  # 2.4 MB in JSON
    with stage.running() as run:
        stage.finish(run, "other")
        reported = [report for each in run.reports for report in each.outcome.reports]
        assert [(report.refused, "at the row [7]" in report.text) for report in reported] == [
            (Code.RECORD_TOO_LARGE, True)
        ]
        (paused,) = [job for job in run.reports[-1].outcome.jobs if job.paused]
        assert (paused.paused_by or "").startswith("RECORD_TOO_LARGE at the row [7]: found a row of 24000")
        upstream.put(row(8, "later"))
        run.reach(upstream.barrier())
    with stage.running() as run:  # a pause is kept
        assert [job.paused for job in run.reach(upstream.barrier()).outcome.jobs] == [True, False]
        run.reach(upstream.barrier(Resume("copy")))
        run.until(lambda: [job.paused for job in run.reports[-1].outcome.jobs] == [False, False])
        assert [job.paused for job in run.reach(upstream.barrier()).outcome.jobs] == [True, False]
        set_topic(upstream.kafka, output, {"max.message.bytes": "3000000"})
        upstream.barrier(Resume("copy"))
        stage.finish(run, "copy")
    stage.assert_lawful()


def test_a_limit_that_is_lowered_while_it_runs_is_the_broker_s_to_find(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"}, upstream_type=UpsertUpstream, partitions=1)
    upstream, output = stage.upstream, str(stage.jobs[0]["output"])
    upstream.put(row(9, "a" * 600_000))
    run = Run(stage.service())
    stage.finish(run, "copy")
    set_topic(upstream.kafka, output, {"max.message.bytes": LIMIT})
    upstream.put(row(9, "b" * 600_000))
    upstream.barrier()
    expected(run.end(), InputError, Code.RECORD_TOO_LARGE, f"{upstream.name}-0@1")
    set_topic(upstream.kafka, output, {"max.message.bytes": "3000000"})
    with stage.running() as again:
        again.reach(upstream.barrier())
    assert folded(stage) == upstream.rows
