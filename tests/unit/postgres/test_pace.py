"""Division of a table into ranges of keys, and the pace at which it is copied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.position import Key
from state.values.chunks import KeyRange
from streaming.postgres.copying import CHUNK_BYTES, ChunkSize, Pace, Speed
from streaming.postgres.reader import divided

KEYS = st.tuples(st.sampled_from(["", "a", "é", "z", "\U0001f642"]), st.integers(-3, 3))
ANY = [(text, number) for text in ["", "a", "é", "z", "\U0001f642"] for number in range(-3, 4)]


@given(st.lists(KEYS), KEYS, st.integers(1, 6))
def test_ranges_follow_each_other_to_the_last_key(sample: list[Key], last: Key, count: int) -> None:
    ranges = divided(sample, last, count)
    assert 1 <= len(ranges) <= count
    assert ranges[0].after is None
    assert ranges[-1].upto == last
    for key in ANY:
        holders = [keys for keys in ranges if keys.holds(key)]
        assert len(holders) == KeyRange(None, last).holds(key)


def test_ranges_have_about_as_many_keys_each() -> None:
    ranges = divided([(number,) for number in range(1_000)], (999,), 4)
    assert [keys.upto for keys in ranges] == [(250,), (500,), (750,), (999,)] or [
        keys.upto for keys in ranges
    ] == [(249,), (499,), (749,), (999,)]


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.integers(1, 50_000), st.floats(0, 5)), min_size=1, max_size=40),
)
def test_a_limit_holds_over_any_time(limit: int, steps: list[tuple[int, float]]) -> None:
    pace, now_s, rows = Pace(limit), 100.0, 0
    for most, took_s in steps:
        allowed = pace.take_rows(now_s, most)
        assert allowed <= limit
        rows += allowed
        wait_s = pace.wait_s(now_s)
        assert wait_s is not None
        now_s += took_s if allowed else wait_s + 1e-6
    assert rows <= (now_s - 100.0) * limit + limit + 1


def test_another_limit_counts_at_once() -> None:
    pace = Pace(1)
    assert pace.take_rows(0.0, 10) == 1
    assert pace.take_rows(0.5, 10) == 0
    pace.rate_limit = 1_000
    assert pace.take_rows(0.5, 10) == 10
    pace.rate_limit = None
    assert pace.take_rows(0.5, 99) == 99


def test_it_goes_on_as_fast_as_the_limit_lets_it() -> None:
    pace, now_s, rows = Pace(1_000), 0.0, 0
    while now_s < 60:
        allowed = pace.take_rows(now_s, 50_000)
        rows += allowed
        now_s += 0.01
    assert rows == pytest.approx(60_000, rel=0.05)


def test_without_a_limit_a_chunk_is_as_large_as_it_may_be() -> None:
    assert [Pace().take_rows(now_s, 7) for now_s in (0.0, 0.0)] == [7, 7]


@pytest.mark.parametrize("pace", [Pace(0), Pace(5, paused=True), Pace(None, paused=True)])
def test_it_stands_still_until_somebody_says_otherwise(pace: Pace) -> None:
    assert pace.take_rows(1e9, 10) == 0
    assert pace.wait_s(1e9) is None
    pace.rate_limit, pace.paused = None, False
    assert pace.take_rows(1e9, 10) == 10


def test_chunks_of_wide_rows_have_fewer_rows() -> None:
    size = ChunkSize(50_000)
    size.learn_chunk(50_000, 10 * CHUNK_BYTES)
    assert size.rows == 5_000
    size.learn_chunk(5_000, CHUNK_BYTES // 2)
    assert size.rows == 10_000
    size.learn_chunk(10_000, 1)
    size.learn_chunk(20_000, 1)
    size.learn_chunk(40_000, 1)
    assert size.rows == 50_000
    for _ in range(20):
        size.learn_failure()
    assert size.rows == 1
    size.learn_chunk(1, 100 * CHUNK_BYTES)
    assert size.rows == 1


def test_time_left_goes_by_what_this_process_has_read() -> None:
    speed = Speed(1_000)
    assert speed.left_s(0.0, 100) is None
    speed.add(10.0, 100, 10.0)
    assert speed.left_s(10.0, 400) == pytest.approx(50.0)
    assert speed.left_s(10.0, 5_000) == 0
