"""The number of lanes changes by the command, several times, while two jobs read: real broker, real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from schemas.records import Lanes, Throttle
from tests.integration.service.test_backfill import COPY, FILTERED, fill, stir
from tests.integration.service.test_steering import Say, refused
from tests.integration.service.test_steering import say as say
from tests.kit.real import Run, Stage

SetUp = Callable[..., Stage]


def test_lanes_go_up_and_down_by_the_command_while_jobs_read_and_outlive_a_restart(
    set_up: SetUp, say: Say
) -> None:
    stage = set_up({**COPY, "rate_limit": 200}, {**FILTERED, "rate_limit": 200}, lanes=2)
    fill(stage.upstream, 1_200)
    with stage.running(barriers="inject", barrier_interval="100ms") as run:
        run.until(lambda: _read(run) > 0)
        for version, lanes in enumerate((4, 1, 2, 4), 1):
            stir(stage.upstream, version)
            status, out, err = say(stage, "lanes", str(lanes))
            assert (status, out.startswith(f"lanes {lanes}: since barrier ")) == (0, True), err
            _await_lanes(run, lanes)
            assert not run.is_complete("copy"), "the changes were meant for a job that reads"
        assert refused(say(stage, "lanes", "3"), "RESCALE_REFUSED", 2)
        assert refused(say(stage, "lanes", "0"), "USAGE", 2)
        assert _status(say, stage) == (4, 4)
    with stage.running(lanes=1, barriers="inject", barrier_interval="100ms") as run:
        stir(stage.upstream, 9)
        _await_lanes(run, 4)
        assert {report.plan.lanes for report in run.reports} == {4}
        for name in ("copy", "some"):
            assert say(stage, "throttle", name, "unlimited")[0] == 0
        run.until(lambda: run.is_complete("copy") and run.is_complete("some"))
    for number in range(2):
        report = stage.verify(number)
        assert report.clean, report


def test_lanes_ride_on_a_barrier_in_the_data_and_a_mutation_of_a_later_version_is_passed_over(
    set_up: SetUp,
) -> None:
    from schemas.records import Other

    stage = set_up({**COPY, "rate_limit": 300}, lanes=4)
    fill(stage.upstream, 900)
    stage.upstream.barrier()
    with stage.running() as run:
        run.reach(stage.upstream.barrier(Other("Alter", '{"add": {"c": "int"}}')))
        assert [str(each.refused) for each in run.reports[-1].outcome.reports] == ["MUTATION_UNKNOWN"]
        run.reach(stage.upstream.barrier(Lanes(1)))
        stir(stage.upstream, 1)
        assert run.reach(stage.upstream.barrier(Throttle("copy", None))).plan.lanes == 1
        while not run.is_complete("copy"):
            run.reach(stage.upstream.barrier())
    report = stage.verify()
    assert report.clean, report


def _read(run: Run) -> int:
    return sum(sum(report.snapshot_rows.values()) for report in run.reports)


def _await_lanes(run: Run, lanes: int) -> None:
    run.until(lambda: bool(run.reports) and run.reports[-1].plan.lanes == lanes)


def _status(say: Say, stage: Stage) -> tuple[Any, Any]:
    _, out, err = say(stage, "status", "--json")
    assert out, err
    shown: dict[str, Any] = json.loads(out)
    return shown["lanes"], shown["lanes_set"]
