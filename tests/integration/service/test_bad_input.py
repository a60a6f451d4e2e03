"""Bad input stops the service with one line that says where and what; nothing wrong is sent, and nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.errors import BackfillError, Code
from schemas.records import Barrier, Change, Op
from streaming.cli.app import main
from streaming.kafka.topics import create_topic, partitions_of
from tests.kit.real import Run, SetUp
from tests.kit.real_upstream import RealUpstream, row

COPY = {"name": "copy"}


def a_line(error: BaseException, code: Code, where: str) -> None:
    """The error is the one expected, and its text is a line that names everything."""
    assert isinstance(error, BackfillError), error
    assert error.code == code, error
    assert error.where == where, error
    assert error.exit_status != 0
    assert re.fullmatch(r"[A-Z_]+ at \S.*: found .+; expected .+; next: .+", str(error)), error


def test_records_at_fault_stop_it_one_by_one_until_each_is_left_out(set_up: SetUp) -> None:
    stage = set_up(COPY, {"name": "again", "columns": ["note"]}, lanes=4)
    upstream = stage.upstream
    for number in range(200):
        upstream.put(row(number))
    upstream.barrier()
    with stage.running() as run:
        run.reach(upstream.barrier())
    key, sound = upstream.keys.encode((7,)), upstream.changes.encode(Change(Op.UPDATE, row(7), row(7)))
    for number in range(0, 200, 3):
        upstream.put(row(number, "before"))
    bad = [
        (upstream.send(0, key, sound + b"\x00"), Code.AVRO_TRAILING),
        (upstream.send(0, key, None), Code.TOMBSTONE_UNSUPPORTED),
        (upstream.change(Change(Op.UPDATE, row(8), row(9))), Code.UPDATE_CHANGES_PK),
        (upstream.change(Change(Op.INSERT, None, row(900)), key=key), Code.KEY_MISMATCH),
    ]
    for number in range(1, 200, 3):
        upstream.put(row(number, "after"))
    upstream.barrier()
    skip: frozenset[tuple[int, int]] = frozenset()
    for (offset, code), lanes in zip(bad, (4, 2, 1, 4), strict=True):
        # Another number of lanes has to finish the batch that four have begun.
        a_line(stage.fails(BackfillError, skip=skip, lanes=lanes), code, f"{upstream.name}-0@{offset}")
        skip |= {(0, offset)}
    with stage.running(skip=skip, lanes=2) as run:
        for number in range(2, 200, 3):
            upstream.put(row(number, "later"))
        run.reach(upstream.barrier())
        assert run.is_complete("copy")
    with stage.running(lanes=4) as run:  # what was left out once is behind us
        run.reach(upstream.barrier())
    stage.assert_lawful(left_out=skip)


def test_only_a_record_at_fault_is_left_out(set_up: SetUp) -> None:
    stage = set_up(COPY)
    offset = stage.upstream.change(Change(Op.INSERT, None, row(1)))
    stage.upstream.barrier()
    with stage.running(skip=frozenset({(0, offset)})) as run:
        run.reach(stage.upstream.barrier())
        run.reach(stage.upstream.barrier())
        assert run.is_complete("copy")
    report = stage.verify()
    assert report.clean, report
    assert report.snapshot_rows == 1
    assert partitions_of(stage.upstream.kafka, stage.config().jobs[0].dead_letters) is None


BREAK: dict[Code, Callable[[RealUpstream, Barrier], int]] = {
    Code.BARRIER_MALFORMED: lambda up, barrier: up.send(1, None, b"?", barrier=barrier_header(barrier)),
    Code.BARRIER_GAP: lambda up, barrier: up.deliver(replace(barrier, prev=barrier.prev - 1), 1),
    Code.BARRIER_REGRESSION: lambda up, barrier: up.deliver(
        replace(barrier, prev=0, curr=barrier.prev - 1), 1
    ),
    Code.PARTITIONS_CHANGED: lambda up, barrier: up.deliver(replace(barrier, partitions=3), 1),
}


@pytest.mark.parametrize("code", BREAK)
def test_a_broken_barrier_stops_it_and_is_none_once_it_is_named(set_up: SetUp, code: Code) -> None:
    stage = set_up(COPY)
    upstream = stage.upstream
    upstream.put(row(1))
    upstream.barrier()
    broken = upstream.next()
    offset = BREAK[code](upstream, broken)
    upstream.last = replace(broken, curr=broken.prev)
    good = upstream.next()
    upstream.deliver(good, 0, 1)
    a_line(stage.fails(BackfillError), code, f"{upstream.name}-1@{offset}")
    with stage.running(skip=frozenset({(1, offset)})) as run:
        run.reach(good)
        upstream.put(row(2))
        last = upstream.next()
        upstream.deliver(last, 0, 1)
        run.reach(last)
    stage.assert_lawful(left_out=frozenset({(1, offset)}))


def test_partitions_that_disagree_on_a_barrier_stop_it(set_up: SetUp) -> None:
    stage = set_up(COPY)
    stage.upstream.put(row(1))
    stage.upstream.barrier()
    one = stage.upstream.next()
    stage.upstream.deliver(one, 0)
    offset = stage.upstream.deliver(replace(one, curr=one.curr + 1), 1)
    a_line(stage.fails(BackfillError), Code.BARRIER_DISAGREE, f"{stage.upstream.name}-1@{offset}")


def test_a_broken_barrier_at_the_end_does_not_stop_our_own_injector_once_it_is_named(set_up: SetUp) -> None:
    stage = set_up(COPY)
    stage.upstream.put(row(1))
    barrier = stage.upstream.barrier()
    offset = stage.upstream.send(0, None, encode_barrier(barrier), barrier=b"one")
    error = stage.fails(BackfillError, barriers="inject")
    a_line(error, Code.BARRIER_MALFORMED, f"{stage.upstream.name}-0@{offset}")
    with stage.running(barriers="inject", skip=frozenset({(0, offset)})) as run:
        run.until(lambda: run.is_complete("copy"))
    stage.assert_lawful(left_out=frozenset({(0, offset)}))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"barier_interval": "1s"}, "did you mean 'barrier_interval'"),
        ({"barrier_interval": "1000"}, "with a unit"),
        ({"barrier_interval": 1}, "with a unit"),
        ({"lanes": 3}, "3 lanes"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_in_one_line(
    set_up: SetUp, capsys: pytest.CaptureFixture[str], fault: dict[str, Any], expected: str
) -> None:
    stage = set_up(COPY)
    config = stage.folder / "config.json"
    config.write_text(json.dumps({**stage.declared(), **fault}))
    assert main(["run", str(config)]) == 2
    line = capsys.readouterr().err
    assert re.fullmatch(r"CONFIG_INVALID at \S+: found .+; expected .+; next: .+\n", line), line
    assert expected in line
    assert not (stage.folder / "state").exists()


def test_a_key_of_a_type_without_an_order_is_refused(
    set_up: SetUp, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = set_up(COPY)
    declared = stage.declared()
    declared["table"]["columns"]["id"] = "double"
    config = stage.folder / "config.json"
    config.write_text(json.dumps(declared))
    assert main(["run", str(config)]) == 2
    assert "double" in capsys.readouterr().err


def test_topics_that_are_not_as_they_must_be_stop_it_before_the_state_is_touched(set_up: SetUp) -> None:
    stage = set_up(COPY)
    output = str(stage.jobs[0]["output"])
    missing = stage.fails(BackfillError, upstream=f"no-{stage.upstream.name}")
    a_line(missing, Code.TOPIC_MISSING, f"no-{stage.upstream.name}")
    with pytest.raises(BackfillError) as same:
        stage.fails(BackfillError, jobs=[{**COPY, "output": stage.upstream.name}])
    assert same.value.code is Code.SAME_TOPIC
    create_topic(stage.upstream.kafka, output, 3)
    a_line(stage.fails(BackfillError), Code.OUTPUT_TOPIC_MISMATCH, output)
    assert not (stage.folder / "state").exists()


def test_a_new_job_may_not_go_behind_records_of_others(set_up: SetUp) -> None:
    stage = set_up(COPY)
    output = str(stage.jobs[0]["output"])
    create_topic(stage.upstream.kafka, output, 4)
    foreign = RealUpstream(stage.upstream.table, stage.upstream.kafka, output, 4)
    foreign.send(2, b"k", b"v")
    foreign.close()
    at_once = stage.fails(BackfillError)  # a new state has sent nothing, so no barrier has to be waited for
    a_line(at_once, Code.OUTPUT_TOPIC_MISMATCH, f"{output}-2")
    assert "backfill rebuild" in str(at_once)
    with stage.running(jobs=[]) as before:
        before.reach(stage.upstream.barrier())
    run = Run(stage.service())
    run.reach(stage.upstream.barrier())
    stage.upstream.barrier()
    error = run.end()
    assert error is not None
    a_line(error, Code.OUTPUT_TOPIC_MISMATCH, f"{output}-2")
