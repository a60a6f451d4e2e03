"""The pace of barriers that a service writes to a topic of their own, by `upstream.read_limit`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.source.barriers.injecting.target import BarrierPace

Offsets = tuple[int, ...]


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


def paced(rate: int, interval_ms: int = 1_000, first: Offsets = ()) -> tuple[BarrierPace, Clock]:
    clock = Clock()
    return BarrierPace(rate, interval_ms, clock, first=first), clock


def test_without_a_limit_there_is_no_pace() -> None:
    assert BarrierPace.of(None, 1_000) is None


def test_what_has_piled_up_is_read_at_the_limit_and_what_comes_below_it_at_once() -> None:
    pace, clock = paced(100)
    ends: Offsets = (0, 0)
    seen = []
    for _ in range(20):
        ends = pace.within(ends, (1_000, 500))
        seen.append(sum(ends))
        clock.ms += 1_000
    assert seen[:3] == [100, 200, 300]
    assert ends == (1_000, 500)
    assert pace.within(ends, (1_040, 500)) == (1_040, 500)


def test_a_partition_with_few_records_leaves_its_part_to_the_others() -> None:
    pace, _ = paced(90)
    assert pace.within((0, 0, 0), (1_000, 10, 0)) == (80, 10, 0)


def test_a_limit_below_one_record_a_partition_reaches_every_partition() -> None:
    pace, clock = paced(1, interval_ms=100)
    ends: Offsets = (0, 0, 0)
    for _ in range(100):
        ends = pace.within(ends, (3, 3, 3))
        clock.ms += 100
    assert ends == (3, 3, 3)


def test_barriers_that_are_rare_have_the_limit_of_their_whole_interval() -> None:
    pace, clock = paced(10, interval_ms=60_000)
    ends = pace.within((0,), (100_000,))
    for _ in range(10):
        clock.ms += 60_000
        ends = pace.within(ends, (100_000,))
    assert ends[0] == 10 + 10 * 600


def test_records_that_are_not_read_do_not_count() -> None:
    pace, _ = paced(5, first=(1_000, 0))
    assert pace.within((0, 0), (1_010, 0)) == (1_005, 0)
    pace, _ = paced(5, first=(1_000,))
    assert pace.within((0,), (900,)) == (900,)


@given(
    st.integers(1, 1_000),
    st.lists(
        st.tuples(st.integers(0, 3_000), st.tuples(*[st.integers(0, 400)] * 3)), min_size=1, max_size=30
    ),
)
def test_ends_never_fall_never_pass_the_records_and_stay_within_the_limit(
    rate: int, steps: list[tuple[int, tuple[int, int, int]]]
) -> None:
    pace, clock = paced(rate)
    ends: Offsets = (0, 0, 0)
    records: Offsets = (0, 0, 0)
    read = 0
    for wait_ms, more in steps:
        clock.ms += wait_ms
        records = tuple(a + b for a, b in zip(records, more, strict=True))
        before, ends = ends, pace.within(ends, records)
        assert all(a <= b <= c for a, b, c in zip(before, ends, records, strict=True))
        read += sum(ends) - sum(before)
    # A second's worth at first, and half a second's left over from turn to turn.
    assert read <= rate * (1.5 + clock.ms / 1_000) + 1


@pytest.mark.parametrize("rate", [1, 7, 100])
def test_it_reads_as_fast_as_it_may(rate: int) -> None:
    pace, clock = paced(rate)
    ends: Offsets = (0, 0)
    for _ in range(50):
        ends = pace.within(ends, (1 << 30, 1 << 30))
        clock.ms += 1_000
    assert sum(ends) == 50 * rate
