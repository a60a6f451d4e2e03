from __future__ import annotations

import pytest

from streaming.core.batch_size import (
    FIRST_BYTES,
    FIRST_ROWS,
    LEAST_READ_MS,
    LONGEST_READ_MS,
    MAX_BYTES,
    MAX_ROWS,
    MIN_BYTES,
    MIN_ROWS,
    PLENTY_BYTES,
    PLENTY_ROWS,
    READ_SHARE,
    SOON_ROWS,
    UNBUDGETED_READ_MS,
    BatchLoad,
    OverheadMs,
    SnapshotBudget,
    StartDelay,
)
from streaming.core.planning import Amount

WIDTH = 80


def spent(budget: SnapshotBudget, rows: int, *, read_ms: float, width: int = WIDTH) -> None:
    budget.learn_read(Amount(rows, rows * width), read_ms)


def rows(budget: SnapshotBudget, now_ms: int, limit: int | None = None, *, paused: bool = False) -> int:
    return budget.amount(now_ms, paused=paused, rate_limit=limit).rows


@pytest.mark.parametrize(("paused", "limit"), [(True, None), (True, 100), (False, 0)])
def test_nothing_is_read_while_paused_or_limited_to_nothing(paused: bool, limit: int | None) -> None:
    assert rows(SnapshotBudget(None), 0, limit, paused=paused) == 0


def test_without_a_latency_budget_the_first_rows_are_soon_out_and_later_batches_take_five_seconds() -> None:
    budget = SnapshotBudget(None)
    assert rows(budget, 0) == SOON_ROWS
    spent(budget, SOON_ROWS, read_ms=1_000)
    assert rows(budget, 0) == PLENTY_ROWS
    spent(budget, 10, read_ms=10_000)
    assert rows(budget, 0) == PLENTY_ROWS
    for _ in range(20):
        spent(budget, PLENTY_ROWS, read_ms=PLENTY_ROWS / 400)
    assert rows(budget, 0) == 400 * UNBUDGETED_READ_MS
    for _ in range(20):
        spent(budget, rows(budget, 0), read_ms=1)
    assert rows(budget, 0) == MAX_ROWS


def test_a_limit_that_is_lifted_leaves_nothing_behind_without_a_latency_budget() -> None:
    budget = SnapshotBudget(None)
    spent(budget, rows(budget, 0, 100), read_ms=1)
    assert rows(budget, 1_000) == PLENTY_ROWS


def test_the_first_read_is_small_and_the_next_one_follows_what_it_took() -> None:
    budget = SnapshotBudget(2_000)
    assert rows(budget, 0) == FIRST_ROWS
    spent(budget, FIRST_ROWS, read_ms=400)  # 50 rows/ms
    assert rows(budget, 1_000) == min(50 * 1_000 * READ_SHARE, 2 * FIRST_ROWS)


def grown_rows(latency_budget_ms: int | None, load: BatchLoad, rows_per_ms: float) -> int:
    """The read of a job that has found its size."""
    budget, read = SnapshotBudget(latency_budget_ms), 0
    for now_ms in range(20):
        read = budget.amount(now_ms, paused=False, rate_limit=None, load=load).rows
        spent(budget, read, read_ms=read / rows_per_ms)
    return read


@pytest.mark.parametrize(("rest_ms", "fits_ms"), [(0, 750), (400, 450), (800, 200), (1_500, 200)])
def test_reads_take_what_the_rest_of_a_batch_leaves_of_half_the_budget(
    rest_ms: float, fits_ms: float
) -> None:
    assert grown_rows(2_000, BatchLoad(1, rest_ms), 100) == pytest.approx(fits_ms * 100)
    assert grown_rows(2_000, BatchLoad(2, rest_ms), 100) == pytest.approx(max(fits_ms / 2, 200) * 100)
    assert (READ_SHARE, LEAST_READ_MS) == (0.75, 200)


@pytest.mark.parametrize(("late_ms", "fits_ms"), [(0, 450), (200, 300), (600, 200), (60_000, 200)])
def test_a_batch_that_begins_late_reads_less(late_ms: float, fits_ms: float) -> None:
    assert grown_rows(2_000, BatchLoad(1, 400, late_ms), 100) == pytest.approx(fits_ms * 100)


def test_a_batch_is_late_by_what_its_barrier_waited_longer_than_another_whatever_the_clocks_say() -> None:
    for ahead_ms in (-5_000_000, 0, 7_000):
        start_delay = StartDelay()
        began = [(0, 20_000), (1_000, 20_500), (2_000, 2_400), (3_000, 3_400), (4_000, 4_900), (5_000, 5_390)]
        late = [start_delay.delay_ms(barrier_ms, now_ms + ahead_ms) for barrier_ms, now_ms in began]
        assert late == [0, 0, 0, 0, 500, 0]


def test_jobs_without_a_budget_share_five_seconds() -> None:
    assert grown_rows(None, BatchLoad(5, 60_000.0), 2_000) == 2_000 * UNBUDGETED_READ_MS / 5


def test_the_rest_of_a_batch_is_the_median_of_the_last_few() -> None:
    rest = OverheadMs()
    assert rest.ms == 0
    for took_ms in (30_000.0, 400.0, 500.0, 600.0):
        rest.add(took_ms)
    assert rest.ms == 550
    for took_ms in (300.0,) * 3:
        rest.add(took_ms)
    assert rest.ms == 300


def test_a_read_that_took_less_than_it_might_is_followed_at_once() -> None:
    budget, taken = SnapshotBudget(1_000), []
    for _ in range(10):
        taken.append(rows(budget, 0))
        spent(budget, taken[-1], read_ms=100 + taken[-1] / 1_000)  # what a read costs in any case, and a row
    most = (500 * READ_SHARE - 100) * 1_000
    assert taken[:2] == [FIRST_ROWS, 2 * FIRST_ROWS]
    assert all(0.8 * most <= read <= most for read in taken[5:]), taken


def test_reads_grow_at_most_twofold_and_adapt_to_a_slower_machine() -> None:
    budget = SnapshotBudget(2_000)
    spent(budget, FIRST_ROWS, read_ms=1)
    assert rows(budget, 0) == 2 * FIRST_ROWS
    for _ in range(20):
        spent(budget, rows(budget, 0), read_ms=5_000)
    read = rows(budget, 0)
    assert MIN_ROWS <= read < FIRST_ROWS


def test_progress_comes_before_latency_on_a_machine_that_is_too_slow() -> None:
    budget = SnapshotBudget(1)
    spent(budget, 10, read_ms=60_000)
    assert rows(budget, 0) == MIN_ROWS


def test_a_batch_that_read_nothing_teaches_nothing() -> None:
    budget = SnapshotBudget(2_000)
    spent(budget, 0, read_ms=500)
    assert rows(budget, 0) == FIRST_ROWS


@pytest.mark.parametrize("step_ms", [10, 700, 1_000, 5_000])
def test_a_rate_limit_holds_over_time_whatever_the_pace_of_the_batches(step_ms: int) -> None:
    budget, limit, read = SnapshotBudget(None), 100, 0
    seconds = 100
    for now_ms in range(0, seconds * 1_000, step_ms):
        taken = rows(budget, now_ms, limit)
        spent(budget, taken, read_ms=1)
        read += taken
    assert read <= limit * (seconds + 2)
    if step_ms <= 2_000:
        assert read >= limit * (seconds - 1)


def test_a_rate_below_one_row_a_batch_adds_up_to_rows() -> None:
    budget = SnapshotBudget(None)
    taken = []
    for now_ms in range(0, 10_000, 250):
        taken.append(rows(budget, now_ms, 1))
        spent(budget, taken[-1], read_ms=1)
    assert set(taken) == {0, 1}
    assert sum(taken) == 10


def test_a_long_wait_is_followed_by_two_seconds_worth_and_the_bucket_at_most() -> None:
    budget = SnapshotBudget(None)
    assert rows(budget, 0, 100) == 100  # nothing is read of it, so half is left in the bucket
    assert rows(budget, 3_600_000, 100) == 250


def test_what_batches_leave_adds_up_to_half_a_second_s_worth() -> None:
    budget, most = SnapshotBudget(None), 0
    # Another bound of the batch leaves nearly all of the rows of the limit.
    for now_ms in range(0, 100_000, 1_000):
        most = rows(budget, now_ms, 700)
        spent(budget, 10, read_ms=1)
    assert most <= 700 + 350


def test_a_pause_is_not_followed_by_a_burst() -> None:
    budget = SnapshotBudget(None)
    rows(budget, 0, 100)
    rows(budget, 60_000, 100, paused=True)
    assert rows(budget, 60_100, 100) == 10


def test_rows_read_beyond_the_budget_are_paid_back() -> None:
    budget = SnapshotBudget(None)
    assert rows(budget, 0, 100) == 100
    spent(budget, 300, read_ms=1)
    assert rows(budget, 1_000, 100) == 0
    assert rows(budget, 3_000, 100) == 100


def test_rows_read_without_a_limit_are_no_debt_once_there_is_one() -> None:
    budget = SnapshotBudget(None)
    rows(budget, 0)
    spent(budget, 1_000_000, read_ms=1_000)
    assert rows(budget, 1_000, 100) == 100


def test_debt_under_a_high_limit_is_forgiven_by_a_lower_one() -> None:
    budget = SnapshotBudget(None)
    rows(budget, 0, 100_000)
    spent(budget, 300_000, read_ms=1_000)
    assert rows(budget, 1_000, 10) == 10


def taken_bytes(
    latency_budget_ms: int | None, width: int, bytes_per_ms: float, readers: int = 1
) -> list[int]:
    """Rows that a job reads in one batch after another, each of this width."""
    budget, read = SnapshotBudget(latency_budget_ms), []
    for now_ms in range(20):
        most = budget.amount(now_ms, paused=False, rate_limit=None, load=BatchLoad(readers))
        count = max(min(most.rows, most.size // width), 1)
        read.append(count * width)
        spent(budget, count, read_ms=count * width / bytes_per_ms, width=width)
    return read


@pytest.mark.parametrize("width", [50_000, 900_000])
@pytest.mark.parametrize("bytes_per_ms", [1_000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("readers", [1, 3])
def test_wide_rows_are_read_within_half_a_transaction_and_a_gigabyte(
    width: int, bytes_per_ms: int, readers: int
) -> None:
    first, *later = taken_bytes(None, width, bytes_per_ms, readers)
    assert first <= PLENTY_BYTES
    for read in later:
        assert read <= MAX_BYTES / readers
        assert read / bytes_per_ms <= LONGEST_READ_MS / readers + width / bytes_per_ms
    assert later[-1] >= 0.9 * min(MAX_BYTES / readers, bytes_per_ms * LONGEST_READ_MS / readers)


@pytest.mark.parametrize("width", [50_000, 900_000])
@pytest.mark.parametrize("bytes_per_ms", [10_000, 100_000])
def test_a_latency_budget_holds_for_wide_rows(width: int, bytes_per_ms: int) -> None:
    first, *later = taken_bytes(2_000, width, bytes_per_ms)
    assert first <= FIRST_BYTES
    assert all(read <= max(1_500 * bytes_per_ms, MIN_BYTES) for read in later), later


@pytest.mark.parametrize("width", [60, 100, 130])
def test_bytes_take_nothing_from_narrow_rows(width: int) -> None:
    assert taken_bytes(None, width, 1_600 * width)[-1] == MAX_ROWS * width
    assert taken_bytes(2_000, width, 400 * width)[-1] == pytest.approx(750 * 400 * width, rel=0.01)


def test_rows_that_become_wider_are_read_in_smaller_numbers_at_once() -> None:
    budget = SnapshotBudget(2_000)
    for now_ms in range(10):
        most = budget.amount(now_ms, paused=False, rate_limit=None)
        spent(budget, most.rows, read_ms=most.rows / 400)
    most = budget.amount(10, paused=False, rate_limit=None)
    assert most.size <= 1.5 * most.rows * WIDTH


def test_bytes_that_nobody_planned_teach_nothing_of_bytes() -> None:
    budget = SnapshotBudget(None)
    spent(budget, 1_000, read_ms=1_000, width=0)
    assert budget.amount(0, paused=False, rate_limit=None).size == PLENTY_BYTES
