"""Times: of the next barrier, of records at a steady load, and up to which a topic keeps unread records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import BarrierKind, Pause
from streaming.events.sender import SteadyLoad
from streaming.source.barriers.injecting.injector import is_wanted, next_barrier, next_due_ms
from streaming.source.retention import kept_ms

NOW_MS = 1_800_000_000_000


def test_a_topic_begins_with_an_initial_barrier_without_predecessor() -> None:
    first = next_barrier(None, partitions=3, now_ms=NOW_MS, mutation=None)
    assert (first.prev, first.kind, first.partitions) == (0, BarrierKind.INITIAL, 3)
    assert first.injected_at_ms == NOW_MS


def test_a_later_barrier_follows_the_last_one_and_carries_the_mutation() -> None:
    first = next_barrier(None, partitions=3, now_ms=NOW_MS, mutation=None)
    second = next_barrier(first, partitions=3, now_ms=NOW_MS + 1, mutation=Pause("a"))
    assert (second.prev, second.kind, second.mutation) == (first.curr, BarrierKind.CHECKPOINT, Pause("a"))


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(1, 10**4))
def test_the_schedule_neither_drifts_nor_catches_up(due_ms: int, late_ms: int, interval_ms: int) -> None:
    now_ms = due_ms + late_ms
    following = next_due_ms(due_ms, now_ms, interval_ms)
    assert (following - due_ms) % interval_ms == 0  # no drift
    assert following > due_ms
    assert now_ms <= following < max(now_ms, due_ms + 1) + interval_ms  # no burst, no gap


def test_a_stall_of_many_intervals_is_followed_by_one_barrier() -> None:
    assert next_due_ms(1_000, 60_350, 100) == 60_400


def test_a_barrier_that_is_there_already_is_enough() -> None:
    last = next_barrier(None, partitions=2, now_ms=1_000, mutation=None)
    assert is_wanted(last.curr, last)
    assert is_wanted(last.curr, None)
    assert not is_wanted(last.curr - 1, last)
    assert not is_wanted(None, last)


def test_ticks_add_up_to_the_rate() -> None:
    load = SteadyLoad(200, 0.0)
    assert sum(load.due(tick / 100) for tick in range(1, 1_001)) == pytest.approx(2_000, abs=1)


def test_a_stall_is_made_up_for_by_one_second_and_the_rate_goes_on_after_it() -> None:
    load = SteadyLoad(200, 0.0)
    assert load.due(1.0) == 200
    assert load.due(9.0) == 200
    assert load.due(9.5) == 100
    assert load.due(10.0) == 100


@given(st.floats(0.1, 5_000), st.lists(st.floats(0, 20), min_size=1, max_size=50))
def test_nothing_negative_is_ever_due_and_never_more_than_a_second(rate: float, steps: list[float]) -> None:
    load, now = SteadyLoad(rate, 0.0), 0.0
    for step in steps:
        now += step
        assert 0 <= load.due(now) <= max(rate, 1)


SETTINGS = {"retention.ms": "5000", "min.compaction.lag.ms": "3600", "delete.retention.ms": "400"}


@pytest.mark.parametrize(
    ("policy", "retention_ms", "kept"),
    [
        ("delete", "5000", 5_000),
        ("delete", "-1", None),
        ("compact", "5000", 4_000),
        ("compact,delete", "5000", 4_000),
        ("compact,delete", "3000", 3_000),
        ("delete,compact", "-1", 4_000),
    ],
)
def test_the_shorter_of_what_deletes_counts(policy: str, retention_ms: str, kept: int | None) -> None:
    settings = {**SETTINGS, "cleanup.policy": policy, "retention.ms": retention_ms}
    assert kept_ms(settings) == kept
