"""Shares never pass 100 %, and fall only if it is said why; the time left follows the rate and the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from state.values.progress import Completed, InProgress, Progress
from streaming.core.forecast import (
    WINDOW_MS,
    Extent,
    Forecast,
    RateEstimator,
    extent,
    records_stored,
    seconds_left,
)


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


def test_a_share_that_was_shown_stays_and_says_that_the_table_grew() -> None:
    rate = RateEstimator()
    before = rate.update(0, Extent(50, 50), rate_limit=None, paused=False)
    after = rate.update(1_000, Extent(50, 150), rate_limit=None, paused=False)
    assert (before.share, before.grew, after.share, after.grew) == (0.5, False, 0.5, True)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = RateEstimator()

    def look(second: int) -> Forecast:
        rows = min(second, 30) * 1_000
        return rate.update(second * 1_000, Extent(rows, 100_000 - rows), rate_limit=None, paused=False)

    forecasts = [look(second) for second in range(60)]
    assert (forecasts[20].rows_per_s, forecasts[20].seconds_left) == (1_000, 80)
    assert WINDOW_MS < 29_000
    assert (forecasts[-1].rows_per_s, forecasts[-1].seconds_left) == (0, None)


def test_reads_that_grow_at_first_don_t_spoil_the_time_left_of_a_short_run() -> None:
    rate, rows, total = RateEstimator(), 0, 1_000_000
    seen = []
    for tenth in range(150):  # looks between two reads too
        second = tenth / 10
        if tenth % 10 == 0 and second >= 3:  # until the job has started nothing is read
            rows = min(rows + min(20_000 * 2 ** (tenth // 10 - 3), 100_000), total)
        estimate = rate.update(tenth * 100, Extent(rows, total - rows), rate_limit=None, paused=False)
        seen.append((second, estimate.share, estimate.seconds_left))
    done_s = next(second for second, share, _ in seen if share == 1)
    second, _, left_s = next(look for look in seen if look[1] >= 0.25)
    assert left_s is not None
    assert abs(left_s - (done_s - second)) <= 0.2 * (done_s - second)


def test_the_time_left_follows_a_limit_below_the_rate_and_nothing_while_paused() -> None:
    seen = Extent(0, 1_000)
    assert seconds_left(seen, 500.0, rate_limit=100, paused=False) == 10
    assert seconds_left(seen, 50.0, rate_limit=100, paused=False) == 20
    assert seconds_left(seen, 50.0, rate_limit=0, paused=False) is None
    assert seconds_left(seen, 50.0, rate_limit=None, paused=True) is None
    assert seconds_left(Extent(9, 0), None, rate_limit=None, paused=True) == 0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1))
def test_no_history_shows_more_than_all_or_less_than_before(looks: list[tuple[int, int]]) -> None:
    rate, shares = RateEstimator(), [0.0]
    for number, (read, left) in enumerate(looks):
        shares.append(rate.update(number, Extent(read, left), rate_limit=None, paused=False).share)
    assert shares == sorted(shares)
    assert shares[-1] <= 1.0
