"""The next barrier, and its time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.records import BarrierKind, Pause
from streaming.source.barriers.injecting.injector import is_wanted, next_barrier, next_due_ms

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
