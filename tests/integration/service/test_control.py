"""Mutations come through barriers and take effect at the end of the batch that holds them; restarts keep them."""

from __future__ import annotations

import json

from confluent_kafka import Message

from schemas.avro.codec import decode_barrier
from schemas.errors import Code
from schemas.records import BARRIER_HEADER, Add, Drop, Pause, Resume, Stop, Throttle
from streaming.kafka.consumer import header_of, location
from tests.kit.real import Run, SetUp, Stage, records
from tests.kit.real_upstream import RealUpstream


def epochs(stage: Stage, output: str) -> list[list[int]]:
    """Of the barriers of each partition of an output."""
    return [
        [
            decode_barrier(header, message.value(), where=location(message)).curr
            for message in partition
            if (header := header_of(message, BARRIER_HEADER)) is not None
        ]
        for partition in records(stage.upstream.kafka, output)
    ]


def last_of_each(stage: Stage, output: str) -> list[Message]:
    return [partition[-1] for partition in records(stage.upstream.kafka, output)]


def live(stage: Stage, run: Run, count: int = 3) -> None:
    """Barriers with a few changes before each."""
    for _ in range(count):
        for key in list(stage.upstream.rows)[::17]:
            row = stage.upstream.rows[key]
            stage.upstream.put((*row[:-1], f"{row[-1]}'"))
        run.reach(stage.upstream.barrier())


def test_a_job_is_limited_paused_resumed_added_dropped_and_all_is_stopped_by_barriers(set_up: SetUp) -> None:
    stage = set_up({"name": "copy", "rate_limit": 0})
    upstream, copy = stage.upstream, str(stage.jobs[0]["output"])
    for number in range(300):
        upstream.put((number, "EU", None, "n"))
    with stage.running() as run:
        run.reach(upstream.barrier())
        live(stage, run)
        assert run.reports[-1].progress["copy"] == {}, "limited to 0, nothing is read"

        added = {"name": "late", "output": f"late-{copy}", "output_partitions": 2, "filter": "id < 100"}
        run.reach(upstream.barrier(Add(json.dumps(added))))
        run.reach(upstream.barrier(Pause(None)))
        states = dict(run.reports[-1].progress["late"])
        run.reach(upstream.barrier(Throttle("copy", None)))
        live(stage, run)
        assert run.reports[-1].progress["copy"] == {}, "paused, nothing is read"
        assert run.reports[-1].progress["late"] == states

    with stage.running() as run:  # pauses, limits and jobs survive
        live(stage, run)
        assert run.reports[-1].progress["copy"] == {}
        run.reach(upstream.barrier(Resume("copy")))
        run.reach(upstream.barrier())
        assert run.is_complete("copy")
        refused = run.reach(upstream.barrier(Drop("nobody"))).outcome.reports
        assert [report.refused is not None for report in refused] == [True]
        run.reach(upstream.barrier(Resume(None)))
        drop = upstream.barrier(Drop("copy"))
        run.reach(drop)
        live(stage, run)
        assert run.is_complete("late")
        assert [partition[-1] for partition in epochs(stage, copy)] == [drop.curr] * 4
        assert all(header_of(message, BARRIER_HEADER) for message in last_of_each(stage, copy))
        last = upstream.barrier(Stop())
        assert run.end() is None
    assert [partition[-1] for partition in epochs(stage, str(added["output"]))] == [last.curr] * 2

    late = Stage(stage.spark, upstream, stage.folder, [added], stage.lanes)
    for report in (stage.verify(), late.verify()):
        assert report.clean, report


def test_jobs_stand_still_that_are_created_paused_or_that_a_start_pauses_until_they_are_resumed(
    set_up: SetUp,
) -> None:
    stage = set_up({"name": "copy", "paused": True}, {"name": "other", "rate_limit": 10})
    upstream = stage.upstream
    for number in range(300):
        upstream.put((number, "EU", None, "n"))
    with stage.running() as run:
        run.reach(upstream.barrier())
        while not run.reports[-1].progress.get("other"):
            run.reach(upstream.barrier())
        assert run.reports[-1].progress["copy"] == {}
        run.reach(upstream.barrier(Throttle("other", None)))
        before = dict(run.reports[-1].progress["other"])
    with stage.running(paused=True) as run:
        live(stage, run)
        assert (run.reports[-1].progress["copy"], run.reports[-1].progress["other"]) == ({}, before)
    with stage.running() as run:  # what a start has paused stays so
        live(stage, run)
        assert run.reports[-1].progress["other"] == before
        run.reach(upstream.barrier(Resume(None)))
        run.reach(upstream.barrier())
        assert run.is_complete("copy")
        assert run.is_complete("other")
    stage.assert_lawful()


def test_a_dropped_job_that_is_still_in_the_file_names_its_old_topic_in_vain(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    stage.upstream.put((1, "EU", None, None))
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        run.reach(stage.upstream.barrier(Drop("copy")))
        run.reach(stage.upstream.barrier())
    with stage.running(jobs=[]) as run:
        run.reach(stage.upstream.barrier())
    again = Run(stage.service())
    again.reach(stage.upstream.barrier())
    stage.upstream.barrier()
    error = again.end()
    assert "OUTPUT_TOPIC_MISMATCH" in str(error)


def test_a_request_for_an_output_that_holds_records_is_refused_and_the_service_goes_on(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    stage.upstream.put((1, "EU", None, None))
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        filled = f"{stage.upstream.name}-filled"
        foreign = RealUpstream(stage.upstream.table, stage.upstream.kafka, filled, 2)
        foreign.send(0, b"k", b"v")
        foreign.close()
        for output, code in (
            (filled, Code.OUTPUT_TOPIC_MISMATCH),
            (stage.upstream.name, Code.SAME_TOPIC),
            (f"{stage.upstream.name}.control", Code.SAME_TOPIC),
        ):
            request = json.dumps({"name": "other", "output": output, "output_partitions": 2})
            run.reach(stage.upstream.barrier(Add(request)))
            reports = run.reach(stage.upstream.barrier()).outcome.reports
            assert [report.refused for report in reports] == [code]
        run.reach(stage.upstream.barrier())
        assert run.is_complete("copy")
    assert stage.verify().clean


def test_a_job_new_in_the_file_starts_at_the_end_of_the_first_batch_after_the_restart(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    stage.upstream.put((1, "EU", None, None))
    with stage.running(jobs=[]) as run:
        run.reach(stage.upstream.barrier())
    with stage.running() as run:
        first = stage.upstream.barrier()
        run.reach(first)
        run.reach(stage.upstream.barrier())
    starts = {partition[0] for partition in epochs(stage, str(stage.jobs[0]["output"]))}
    assert starts == {first.curr}
