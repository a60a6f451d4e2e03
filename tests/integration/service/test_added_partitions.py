"""An upstream that gains partitions while jobs read its table: real broker, real Spark; `verify` is the judge."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from schemas.records import Throttle
from tests.integration.service.test_append import ALL, EVENTS, SOME, append
from tests.integration.service.test_backfill import COPY, fill, stir
from tests.kit.real import SetUp
from tests.kit.real_upstream import AppendUpstream, RealUpstream, UpsertUpstream, gain

OWN: dict[str, Any] = {"barriers": "inject", "barrier_interval": "100ms"}
LOG = {"name": "log", "read": "topic", "output_partitions": None}


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_jobs_go_on_through_partitions_that_are_added_while_they_read(set_up: SetUp, beside: bool) -> None:
    stage = set_up({**COPY, "rate_limit": 100}, {**LOG, "rate_limit": 100}, beside=beside)
    upstream = stage.upstream
    fill(upstream, 300)
    upstream.barrier()
    with stage.running() as run:
        run.reach(upstream.barrier())
        for version in (1, 2):
            stir(upstream, version)
            gain(upstream, version)
            stir(upstream, 10 + version)
            reports = run.reach(upstream.barrier()).outcome.reports
            assert ["may be left with the older row" in each.text for each in reports] == [True]
        assert len(run.reports[-1].plan.first_offsets) == 5
        assert not any(map(run.is_complete, ("copy", "log")))
    with stage.running(limits={"interval_records": 50}) as run:  # long intervals come in the order of time
        for name in ("copy", "log"):
            stir(upstream, 3)
            run.reach(upstream.barrier(Throttle(name, None)))
        stage.finish(run, "copy", "log")
    stage.assert_lawful()


@pytest.mark.parametrize("beside", [False, True])
def test_a_service_that_injects_takes_them_in_by_itself(set_up: SetUp, beside: bool) -> None:
    form = UpsertUpstream if beside else RealUpstream
    stage = set_up({**COPY, "rate_limit": 500}, beside=beside, upstream_type=form)
    upstream = stage.upstream
    fill(upstream, 600)
    with stage.running(**OWN) as run:
        run.until(lambda: bool(run.reports))
        gain(upstream, 2)
        stir(upstream, 1)
        upstream.flush()
        run.until(lambda: len(run.reports[-1].plan.first_offsets) == 4 and run.is_complete("copy"))
    stage.assert_lawful()


@pytest.mark.thorough
def test_rows_without_identity_go_on_in_the_same_partitions(set_up: SetUp) -> None:
    stage = set_up(ALL, SOME, table=EVENTS, partitions=2, upstream_type=AppendUpstream)
    chance = random.Random(5)
    append(stage, 600, chance, [[], []])
    with stage.running(**OWN) as run:
        run.until(lambda: run.is_complete("all"))
        gain(stage.upstream, 2)
        append(stage, 300, chance, [[] for _ in range(4)])
        stage.upstream.flush()
        run.until(lambda: len(run.reports[-1].plan.first_offsets) == 4 and run.is_complete("some"))
        run.until(lambda: run.reports[-1].plan.moved_at > 0)
    stage.assert_lawful()


def test_a_start_by_default_suits_an_output_that_has_yet_to_gain_partitions(set_up: SetUp) -> None:
    """The topic has two by then, for two lanes; the output has one, until a barrier tells of the second."""
    stage = set_up(LOG, partitions=1)
    stage.lanes = None
    upstream = stage.upstream
    fill(upstream, 60)
    upstream.barrier()
    with stage.running() as run:
        stage.finish(run, "log")
        assert run.reports[-1].plan.lanes == 1
    gain(upstream)
    with stage.running() as run:
        stir(upstream, 1)
        run.reach(upstream.barrier())
        assert run.reports[-1].plan.lanes == 1
    with stage.running() as run:
        stir(upstream, 2)
        run.reach(upstream.barrier())
        assert run.reports[-1].plan.lanes == min(2, len(os.sched_getaffinity(0)))
    assert stage.verify().clean
