"""Shares never pass 100 %, and fall only if it is said why; the time left follows the rate and the limit."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from state.values.progress import Completed, InProgress, Progress
from streaming.core.forecast import (
    LEAST_MS,
    WINDOW_MS,
    Extent,
    Forecast,
    JobProgress,
    JobsProgress,
    Rate,
    extent,
    records_stored,
    seconds_left,
)
from tests.kit.reports import job as job_of


def test_finished_vnodes_count_as_read_and_others_as_stored() -> None:
    progress: dict[int, Progress] = {0: Completed((9,), 100), 1: InProgress((5,), 30)}
    assert extent(progress, 4, {0: 90, 1: 80, 2: 50}) == Extent(130, 50 + 50)


def test_records_of_the_upstream_are_counted_by_their_offsets() -> None:
    progress: dict[int, Progress] = {0: Completed((90,), 60), 1: InProgress((30,), 20)}
    stored = records_stored(progress, (90, 80, 70))
    assert stored == {0: 60, 1: 20 + 50, 2: 70}
    assert extent(progress, 3, stored) == Extent(80, 50 + 70)


def test_an_empty_table_is_not_read_before_its_last_vnode() -> None:
    assert extent({0: Completed(None, 0)}, 2, {}).rows_left == 1
    assert extent({0: Completed(None, 0), 1: Completed(None, 0)}, 2, {}) == Extent(0, 0)
    assert Extent(0, 0).share == 1.0


def test_a_vnode_that_gave_more_than_is_stored_leaves_nothing_to_subtract() -> None:
    assert extent({0: InProgress((5,), 100)}, 2, {0: 60, 1: 40}) == Extent(100, 40)


def noted(
    job: JobProgress, at_ms: int, seen: Extent, limit: int | None = None, *, paused: bool = False
) -> Forecast:
    job.note(at_ms, seen, rate_limit=limit, paused=paused)
    return job.at(at_ms)


def test_a_share_that_was_shown_stays_and_says_that_the_table_grew() -> None:
    job = JobProgress()
    before = noted(job, 0, Extent(50, 50))
    after = noted(job, 1_000, Extent(50, 150))
    assert (before.share, before.grew, after.share, after.grew) == (0.5, False, 0.5, True)


def test_the_rate_is_that_of_the_last_seconds_and_unknown_once_no_batch_comes() -> None:
    job = JobProgress()
    forecasts = [noted(job, 1_000 * second, Extent(second * 1_000, 100_000)) for second in range(31)]
    assert (forecasts[20].rows_per_s, forecasts[20].seconds_left) == (1_000, 100)
    assert job.at(30_000 + WINDOW_MS).rows_per_s == 1_000
    later = job.at(30_001 + WINDOW_MS)
    assert (later.rows_per_s, later.seconds_left, later.share) == (None, None, forecasts[-1].share)


def test_batches_that_read_nothing_make_the_rate_fall_to_zero() -> None:
    rate = Rate()
    for second in range(40):
        rate.note(1_000 * second, min(second, 20) * 700)
    assert rate.at(39_000) == 0.0


def test_a_batch_of_half_a_minute_keeps_its_rate_until_the_next_is_due() -> None:
    rate = Rate()
    for number in range(4):
        rate.note(30_000 * number, 3_000_000 * number)
    assert rate.at(90_000 + 59_000) == 100_000
    assert rate.at(90_000 + 61_000) is None


def test_reads_that_grow_at_first_don_t_spoil_the_time_left_of_a_short_run() -> None:
    job, rows, total = JobProgress(), 0, 1_000_000
    seen = []
    for second in range(20):
        if second >= 3:  # until the job has started nothing is read
            rows = min(rows + min(20_000 * 2 ** (second - 3), 100_000), total)
        estimate = noted(job, 1_000 * second, Extent(rows, total - rows))
        seen.append((second, estimate.share, estimate.seconds_left))
    done_s = next(second for second, share, _ in seen if share == 1)
    second, _, left_s = next(look for look in seen if look[1] >= 0.25)
    assert left_s is not None
    assert abs(left_s - (done_s - second)) <= 0.2 * (done_s - second)


def counted(looks: list[tuple[int, int]]) -> float | None:
    """Slow and obvious: what all batches of the window gave, from every look since the pace changed."""
    grew = next((n for n in range(len(looks)) if looks[n][1] > looks[0][1]), None)
    if grew is None:
        return 0.0 if looks[-1][0] - looks[0][0] >= LEAST_MS else None
    end_ms, end = looks[-1]
    begin_ms = looks[grew - 1][0]
    window_ms = min(max((end_ms - begin_ms) / 2, LEAST_MS), WINDOW_MS)
    before = [look for look in looks[grew - 1 :] if look[0] <= end_ms - window_ms]
    first_ms, first = before[-1] if before else looks[grew - 1]
    return (end - first) * 1_000 / (end_ms - first_ms) if end_ms - first_ms >= LEAST_MS else None


PACES = st.lists(
    st.tuples(
        st.sampled_from([None, 100, 700, 4_000]),  # the limit
        st.booleans(),  # paused
        st.lists(st.integers(50, 3_000), min_size=1, max_size=40),  # milliseconds of batches
        st.sampled_from(["", "", "restart", "outage"]),  # before it
    ),
    min_size=1,
    max_size=6,
)


@given(PACES)
def test_a_rate_is_a_slow_and_obvious_count_under_limits_pauses_restarts_and_outages(
    paces: list[tuple[int | None, bool, list[int], str]],
) -> None:
    jobs, now_ms, rows, owner = JobsProgress(), 0, 0, 1
    looks: list[tuple[int, int]] = []
    before: tuple[int | None, bool] | None = None
    for limit, paused, batches, event in paces:
        if event == "restart":
            owner += 1
        if event == "outage":
            jobs.forget_rates()
        if event or (limit, paused) != before:
            looks = []
        before = limit, paused
        state = job_of("copy", rate_limit=limit, paused=paused)
        for took_ms in batches:
            now_ms += took_ms
            is_idle = paused or took_ms % 5 == 0
            rows += 0 if is_idle else (limit or 20_000) * took_ms // 1_000
            looks.append((now_ms, rows))
            jobs.note(now_ms, [(state, Extent(rows, 10**9))], owner=str(owner))
            rate = jobs.at(now_ms)["copy"].rows_per_s
            wanted = None if paused else counted(looks)
            assert (rate is None) == (wanted is None), (rate, wanted)
            if rate is not None and wanted is not None:
                assert abs(rate - wanted) <= 1e-6 * wanted
            if rate is not None and limit is not None:
                assert rate <= limit + 1


def test_a_job_that_was_created_again_starts_anew() -> None:
    jobs = JobsProgress()
    jobs.note(0, [(job_of("copy"), Extent(90, 10))])
    again = replace(job_of("copy"), start=7)
    jobs.note(1_000, [(again, Extent(0, 100))])
    assert jobs.at(1_000)["copy"].share == 0


def test_the_time_left_follows_a_limit_below_the_rate_and_nothing_while_paused() -> None:
    seen = Extent(0, 1_000)
    assert seconds_left(seen, 500.0, rate_limit=100, paused=False) == 10
    assert seconds_left(seen, 50.0, rate_limit=100, paused=False) == 20
    assert seconds_left(seen, 50.0, rate_limit=0, paused=False) is None
    assert seconds_left(seen, 50.0, rate_limit=None, paused=True) is None
    assert seconds_left(Extent(9, 0), None, rate_limit=None, paused=True) == 0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1))
def test_no_history_shows_more_than_all_or_less_than_before(looks: list[tuple[int, int]]) -> None:
    job, shares = JobProgress(), [0.0]
    for number, (read, left) in enumerate(looks):
        shares.append(noted(job, number, Extent(read, left)).share)
    assert shares == sorted(shares)
    assert shares[-1] <= 1.0
