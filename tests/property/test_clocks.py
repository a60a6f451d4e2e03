"""Clocks that are set, back or forward, at any moment: epochs rise, no age is negative or absurd, nothing stays."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro.codec import barrier_header, decode_barrier, encode_barrier
from schemas.records import Barrier
from streaming.core.batch_size import START_DELAY_WINDOW_MS, StartDelay
from streaming.core.clocks import Age, Stillness
from streaming.source.barriers.injecting.injector import next_barrier

INTERVAL_MS = 1_000
START_MS = 1_800_000_000_000
STEPS_MS = st.integers(-2_000_000_000_000, 2_000_000_000_000)
"""From before 1970 to after 2080."""
SETTINGS = st.lists(st.tuples(st.integers(0, 59), STEPS_MS), max_size=4)
"""After which barrier a clock is set, and by how much."""


def set_by(settings: list[tuple[int, int]], barrier: int) -> int:
    return sum(step_ms for after, step_ms in settings if after < barrier)


def barriers(settings: list[tuple[int, int]], count: int = 60) -> list[tuple[int, Barrier]]:
    """One an interval, with the true time of each, as an injector with such a clock makes them."""
    made: list[tuple[int, Barrier]] = []
    for number in range(count):
        true_ms = number * INTERVAL_MS
        last = made[-1][1] if made else None
        now_ms = START_MS + true_ms + set_by(settings, number)
        made.append((true_ms, next_barrier(last, partitions=1, now_ms=now_ms, mutation=None)))
    return made


@given(st.integers(-62_000_000_000_000, 100_000_000_000_000), SETTINGS)
def test_epochs_rise_and_barriers_can_be_read_whatever_the_clock_says(
    start_ms: int, settings: list[tuple[int, int]]
) -> None:
    last: Barrier | None = None
    for number in range(60):
        now_ms = max(start_ms + number * INTERVAL_MS + set_by(settings, number), -62_000_000_000_000)
        barrier = next_barrier(last, partitions=1, now_ms=now_ms, mutation=None)
        assert barrier.curr > barrier.prev == (last.curr if last else 0)
        assert decode_barrier(barrier_header(barrier), encode_barrier(barrier), where="here") == barrier
        last = barrier


@given(SETTINGS, st.integers(0, 900))
def test_start_delay_forgets_a_clock_that_was_set(settings: list[tuple[int, int]], usual_ms: int) -> None:
    start_delay, quiet_ms = StartDelay(), 0
    last_set = max((after for after, step_ms in settings if step_ms), default=-1)
    for number, (true_ms, barrier) in enumerate(barriers(settings, count=200)):
        late_ms = start_delay.delay_ms(barrier.injected_at_ms, true_ms + usual_ms)
        assert late_ms >= 0
        quiet_ms = true_ms - last_set * INTERVAL_MS
        if number > last_set + 1 and quiet_ms > START_DELAY_WINDOW_MS + INTERVAL_MS:
            assert late_ms == 0
    assert quiet_ms > START_DELAY_WINDOW_MS + INTERVAL_MS


@given(SETTINGS, SETTINGS, st.lists(st.integers(0, 5_000), min_size=60, max_size=60))
def test_ages_are_never_negative_and_never_above_what_can_be(
    theirs: list[tuple[int, int]], ours: list[tuple[int, int]], waits_ms: list[int]
) -> None:
    """`waits_ms`: how long after its injection each barrier is seen."""
    age, seen_ms, age_s = Age(), 0, 0.0
    for number, ((true_ms, barrier), wait_ms) in enumerate(zip(barriers(theirs), waits_ms, strict=True)):
        before_ms, seen_ms = seen_ms, max(seen_ms, true_ms + wait_ms)
        wall_s = (START_MS + seen_ms + set_by(ours, number)) / 1_000
        before_s = age_s
        age_s = age.seen(barrier.curr, barrier.injected_at_ms / 1_000, wall_s, seen_ms / 1_000)
        assert age_s >= 0
        if number:
            assert age_s <= before_s + (seen_ms - before_ms) / 1_000 + 1e-6
        assert abs(age.at(seen_ms / 1_000 + 7) - age_s - 7) < 1e-6


def test_ages_are_exact_while_nobody_sets_a_clock() -> None:
    age = Age()
    for number, (true_ms, barrier) in enumerate(barriers([])):
        wait_s = number % 3 + 0.5
        steady_s = true_ms / 1_000 + wait_s
        wall_s = START_MS / 1_000 + steady_s
        age_s = age.seen(barrier.curr, barrier.injected_at_ms / 1_000, wall_s, steady_s)
        assert abs(age_s - wait_s) < 1e-6
        assert age.seen(
            barrier.curr, barrier.injected_at_ms / 1_000, wall_s + 9, steady_s + 1
        ) == pytest.approx(age_s + 1)


def test_one_clock_that_both_go_by_is_wrong_for_no_barrier_after_the_one_at_which_it_was_set() -> None:
    for step_ms in (-3_600_000, 3_600_000):
        age, ages = Age(), []
        for number, (true_ms, barrier) in enumerate(barriers([(30, step_ms)])):
            wall_s = (START_MS + true_ms + 500 + (step_ms if number >= 30 else 0)) / 1_000
            ages.append(
                age.seen(barrier.curr, barrier.injected_at_ms / 1_000, wall_s, (true_ms + 500) / 1_000)
            )
        wrong = [number for number, age_s in enumerate(ages) if abs(age_s - 0.5) > 1e-6]
        assert wrong == [30]
        assert 0 <= ages[30] <= 1.5 + 1e-6


def test_epochs_of_a_clock_that_was_set_back_are_named_apart_by_a_millisecond() -> None:
    made = barriers([(10, -60_000)])
    steps = [later.curr - earlier.curr for (_, earlier), (_, later) in pairwise(made)]
    assert set(steps[10:50]) == {1 << 16}


def test_a_job_is_still_since_its_last_change_and_one_that_goes_is_forgotten() -> None:
    stillness = Stillness(0.0)
    assert stillness.update(1.0, {}) == {}
    assert Stillness(0.0).oldest_s is None
    assert stillness.update(5.0, {1: (0,), 2: (0,)}) == {1: 0.0, 2: 0.0}
    assert stillness.update(9.0, {1: (0,), 2: (3,)}) == {1: 4.0, 2: 0.0}
    assert stillness.changed_s == 9.0
    assert stillness.update(11.0, {1: (0,), 2: (3,)}) == {1: 6.0, 2: 2.0}
    assert stillness.changed_s == 9.0
    assert stillness.update(12.0, {2: (3,)}) == {2: 3.0}
    assert stillness.oldest_s == 5.0
    assert stillness.changed_s == 12.0
    assert stillness.update(13.0, {1: (0,), 2: (3,)}) == {1: 0.0, 2: 4.0}
