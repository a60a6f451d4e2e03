"""The condition of a service, from what is known of it: all by a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from schemas.errors import Code, EnvironmentProblem, TopicError
from streaming.core.health import (
    HealthCondition,
    HealthFacts,
    Interruption,
    StuckPartition,
    health,
    held_now,
    late_after_s,
)

FACTS = HealthFacts("orders", interval_ms=1_000, late_s=30.0, started_s=0.0)
SERVING = replace(FACTS, streaming_since_s=1.0, last_batch_s=100.0)
AWAY = EnvironmentProblem(Code.BROKER_UNREACHABLE, found="no answer", expected="one", next_step="start it")
FAILED = EnvironmentProblem(Code.SPARK_FAILED, found="a stream that ended", expected="one", next_step="wait")


def said(facts: HealthFacts, now_s: float) -> tuple[HealthCondition, bool, Code | None]:
    found = health(facts, now_s)
    return found.condition, found.ready, found.reason.code if found.reason else None


@pytest.mark.parametrize(
    ("interval_ms", "late_s"), [(100, 30.0), (10_000, 30.0), (20_000, 60.0), (3_600_000, 10_800.0)]
)
def test_late_is_half_a_minute_or_three_intervals(interval_ms: int, late_s: float) -> None:
    assert late_after_s(interval_ms) == late_s


def test_ready_is_a_batch_that_is_young_enough_whatever_else_is_known() -> None:
    assert said(FACTS, 5) == (HealthCondition.STARTING, False, None)
    assert said(SERVING, 130) == (HealthCondition.SERVING, True, None)
    assert not health(SERVING, 130.1).ready
    assert said(replace(SERVING, pending=31), 130) == (HealthCondition.CATCHING_UP, True, None)
    assert said(replace(SERVING, stopping=True), 101) == (HealthCondition.STOPPING, False, None)


def test_nothing_that_is_late_is_ready_and_whatever_is_not_fine_has_a_reason() -> None:
    held = (StuckPartition(0, 5, 9, 100.0),)
    interruptions = (None, Interruption(FAILED, 110.0))
    for since_s, last_s, pending, held_, missing, trouble, away, progress_s in product(
        (None, 1.0, 115.0),
        (None, 100.0),
        (0, 1, 99),
        ((), held),
        ((), ((1, 7),)),
        interruptions,
        interruptions,
        (None, 120.0),
    ):
        facts = HealthFacts(
            "up",
            1_000,
            30.0,
            0.0,
            streaming_since_s=since_s,
            last_batch_s=last_s,
            pending=pending,
            progress_s=progress_s,
            held=held_,
            missing=missing,
            trouble=trouble,
            away=away,
        )
        for now_s in (101.0, 121.0, 131.0, 200.0):
            found = health(facts, now_s)
            assert not (found.ready and now_s - facts.since_s > 30)
            assert found.ready or found.condition is not HealthCondition.SERVING
            named = found.condition in {
                HealthCondition.DEGRADED,
                HealthCondition.UPSTREAM_STUCK,
                HealthCondition.WAITING,
                HealthCondition.STUCK,
            }
            assert named == (found.reason is not None)


def test_a_start_that_took_long_has_not_waited_for_a_barrier_meanwhile() -> None:
    facts = replace(FACTS, streaming_since_s=42.0)
    assert said(facts, 72) == (HealthCondition.STARTING, False, None)
    found = health(facts, 73)
    assert found.condition is HealthCondition.WAITING
    assert found.reason is not None
    assert found.reason.found == "no new barrier for 31 s"


def test_an_open_transaction_is_named_with_its_place_and_how_long_it_lasts() -> None:
    held = held_now((), [(7, 7), (12, 20)], 100.0)
    held = held_now(held, [(9, 9), (12, 31)], 140.0)
    assert held == (StuckPartition(1, 12, 31, 100.0),)
    found = health(replace(SERVING, held=held), 142.0)
    assert (found.condition, found.ready) == (HealthCondition.UPSTREAM_STUCK, False)
    assert found.reason is not None
    assert (found.reason.code, found.reason.where) == (Code.BARRIER_STALLED, "orders-1@12")
    assert "for 42 s" in found.reason.found
    assert "19 records" in found.reason.found


def test_a_transaction_after_the_other_is_none_that_is_stuck() -> None:
    held = held_now((), [(12, 20)], 100.0)
    held = held_now(held, [(20, 31)], 140.0)
    assert held == (StuckPartition(0, 20, 31, 140.0),)
    assert health(replace(SERVING, held=held), 142.0).condition is HealthCondition.WAITING
    assert held_now(held, [(31, 31)], 150.0) == ()


def test_an_open_transaction_is_named_while_the_service_starts() -> None:
    facts = replace(FACTS, held=(StuckPartition(0, 1, 2, 3.0),))
    assert said(facts, 29) == (HealthCondition.STARTING, False, None)
    assert said(facts, 31) == (HealthCondition.UPSTREAM_STUCK, False, Code.BARRIER_STALLED)


def test_barriers_that_do_not_come_are_named_apart_from_one_that_is_missing_in_a_partition() -> None:
    assert said(SERVING, 131) == (HealthCondition.WAITING, False, Code.NO_BARRIERS)
    missing = health(replace(SERVING, missing=((1, 70), (3, 5))), 131)
    assert missing.reason is not None
    assert (missing.condition, missing.reason.code) == (HealthCondition.WAITING, Code.BARRIER_STALLED)
    assert missing.reason.where == "orders-1@70, orders-3@5"


def test_the_injectors_own_hindrance_is_why_no_barriers_come() -> None:
    hindered = replace(SERVING, injects=True, hindered=AWAY)
    assert said(hindered, 130) == (HealthCondition.SERVING, True, None)
    assert said(hindered, 131) == (HealthCondition.DEGRADED, False, Code.BROKER_UNREACHABLE)
    held = TopicError(Code.BARRIER_STALLED, found="a transaction", expected="its end", next_step="end it")
    assert health(replace(hindered, hindered=held), 131).reason is held
    assert said(replace(hindered, hindered=held), 131)[0] is HealthCondition.WAITING


def test_a_batch_that_shows_progress_is_work_and_one_that_shows_none_is_stuck() -> None:
    busy = replace(SERVING, pending=1, progress_s=190.0)
    assert said(busy, 200) == (HealthCondition.CATCHING_UP, False, None)
    assert said(busy, 221) == (HealthCondition.STUCK, False, Code.NO_PROGRESS)
    hangs = replace(SERVING, busy_since_s=90.0, progress_s=90.0)  # while it looks for barriers, say
    assert said(hangs, 131) == (HealthCondition.STUCK, False, Code.NO_PROGRESS)
    assert said(replace(hangs, progress_s=130.0), 131) == (HealthCondition.CATCHING_UP, False, None)
    looks = replace(hangs, busy_since_s=125.0, progress_s=130.0)  # as it does again and again
    assert said(looks, 131) == (HealthCondition.WAITING, False, Code.NO_BARRIERS)
    assert said(replace(busy, last_batch_s=None), 200) == (HealthCondition.STARTING, False, None)
    assert said(replace(busy, last_batch_s=None), 221) == (HealthCondition.STUCK, False, Code.NO_PROGRESS)


def test_after_an_outage_what_follows_from_it_keeps_its_name_until_a_batch_ends_or_the_grace_is_over() -> (
    None
):
    over = replace(SERVING, away=Interruption(AWAY, 104.0, until_s=140.0))
    barriers_missing = replace(over, pending=1)
    for facts in (over, barriers_missing):
        for second in range(141, 172):  # an interval and `late_s`
            assert said(facts, second) == (HealthCondition.DEGRADED, False, Code.BROKER_UNREACHABLE), second
    assert said(over, 172) == (HealthCondition.WAITING, False, Code.NO_BARRIERS)
    assert said(barriers_missing, 172) == (HealthCondition.STUCK, False, Code.NO_PROGRESS)
    assert said(replace(over, last_batch_s=142.0), 143) == (HealthCondition.SERVING, True, None)
    # An outage explains nothing of what comes after a batch.
    assert said(replace(over, last_batch_s=142.0), 173) == (HealthCondition.WAITING, False, Code.NO_BARRIERS)
    reason = health(over, 150).reason
    assert reason is not None
    assert reason.found == "an outage of 36 s, over since 10 s, and no batch since"
    assert reason.next_step == "wait: a batch should end within 21 s"


def test_an_error_during_an_outage_is_the_outage_s_until_the_grace_is_over() -> None:
    facts = replace(
        SERVING, away=Interruption(AWAY, 104.0, until_s=120.0), trouble=Interruption(FAILED, 106.0)
    )
    assert said(facts, 121) == (HealthCondition.DEGRADED, False, Code.BROKER_UNREACHABLE)
    assert said(facts, 152) == (HealthCondition.DEGRADED, False, Code.SPARK_FAILED)
    earlier = replace(facts, trouble=Interruption(FAILED, 103.0))
    assert said(earlier, 121) == (HealthCondition.DEGRADED, False, Code.SPARK_FAILED)


def test_a_broker_that_is_away_degrades_once_it_lasts_and_no_batch_came_since() -> None:
    away = replace(SERVING, away=Interruption(AWAY, 104.0))
    assert said(away, 105) == (HealthCondition.SERVING, True, None)
    assert said(away, 114) == (HealthCondition.DEGRADED, False, Code.BROKER_UNREACHABLE)
    assert said(replace(away, last_batch_s=108.0), 120) == (HealthCondition.SERVING, True, None)


def test_the_broker_is_named_when_spark_is_what_failed() -> None:
    facts = replace(SERVING, away=Interruption(AWAY, 104.0), trouble=Interruption(FAILED, 106.0))
    assert said(facts, 107) == (HealthCondition.DEGRADED, False, Code.BROKER_UNREACHABLE)
    assert said(replace(facts, away=None), 107) == (HealthCondition.DEGRADED, False, Code.SPARK_FAILED)
