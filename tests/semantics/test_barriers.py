"""Barriers that come alone, late, many at once, twice, and in one partition before the other."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.kit.scene import Scene, churn, items, table

MakeScene = Callable[..., Scene]
SMALL = table(vnode_count=4)


def test_barriers_without_data_move_the_scan_on(scene: MakeScene) -> None:
    rows = scene(items(range(30)), table=SMALL)
    for _ in range(5):
        rows.step(5)
    assert sum(state.row_count for state in rows.progress if state is not None) == 25
    rows.finish(5)


def test_data_in_one_partition_only(scene: MakeScene) -> None:
    rows = scene(table=SMALL, partitions=3)
    for number in range(6):
        for row in items(range(number * 5, number * 5 + 10), n=number):
            rows.up.put(row, partition=1)
        rows.step(4)
    rows.finish(4)


def test_a_partition_that_stays_a_barrier_behind_for_many_batches(scene: MakeScene) -> None:
    rows = scene(items(range(30)), table=SMALL)
    before = rows.up.barriers[-1]
    for number in range(10):
        churn(rows.up, items(range(40), n=number), 15, random.Random(number))
        barrier = rows.up.barrier()
        rows.service.read(1)
        rows.service.read(0, until=before)
        assert rows.service.run(4) == (1 if number else 0)
        assert rows.service.position is not None
        assert rows.service.position.epoch == before.curr
        before = barrier
    assert rows.service.aligner.waiting == (0, 1)
    rows.lawful()
    rows.finish()


def test_a_partition_that_is_many_barriers_ahead(scene: MakeScene) -> None:
    rows = scene(items(range(30)), table=SMALL)
    for number in range(10):
        churn(rows.up, items(range(40), n=number), 15, random.Random(number))
        rows.up.barrier()
    rows.service.read(0)
    assert rows.service.run(4) == 0
    rows.service.read(1)
    rows.service.run(4)
    rows.finish()


def test_fifty_barriers_in_one_batch_move_positions_in_the_first_interval_only(scene: MakeScene) -> None:
    rows = scene(items(range(40)), table=SMALL, output_partitions=2, lanes=2)
    for number in range(50):
        churn(rows.up, items(range(60), n=number), 6, random.Random(number))
        rows.up.barrier()
    rows.service.read()
    assert rows.service.run(20) == 1
    for partition in (0, 1):
        told = [bool(barrier.progress) for barrier in rows.barriers(partition)]
        assert told == [False, True] + [False] * 49
    rows.finish()


def test_many_waiting_barriers_are_taken_in_batches_of_bounded_size(scene: MakeScene) -> None:
    rows = scene(items(range(40)), table=SMALL)
    for number in range(30):
        churn(rows.up, items(range(60), n=number), 10, random.Random(number))
        rows.up.barrier()
    rows.service.read()
    rows.service.max_records = 60
    assert 30 / 5 <= rows.service.run(4) < 30
    assert all(plan.max_records <= 60 for plan in rows.service.plans[1:])
    rows.finish()


def test_data_before_the_first_barrier_belongs_to_the_interval_that_it_closes(scene: MakeScene) -> None:
    rows = scene(items(range(20)), table=SMALL)
    assert rows.up.barriers[0].prev == 0
    rows.step()
    assert len(rows.sent()) == 20  # all of it is part of the state as of the first barrier
    rows.finish()


def test_the_first_barrier_comes_late_in_one_partition_and_after_data_in_both(scene: MakeScene) -> None:
    rows = scene(items(range(20)), table=SMALL)
    rows.up.put_all(items(range(10, 30), n=1))
    second = rows.up.barrier()
    rows.service.read(1)
    rows.up.put_all(items(range(20, 40), n=2))
    rows.up.barrier()
    rows.service.read(0, until=second)
    assert rows.service.run() == 1
    rows.service.read()
    assert rows.service.run() == 1
    rows.finish()


def test_a_barrier_repeated_by_a_producers_retry_is_ignored(scene: MakeScene) -> None:
    rows = scene(items(range(20)), table=SMALL)
    rows.up.repeat_barrier([0, 1])
    rows.step(5)
    rows.up.repeat_barrier([1])
    rows.up.repeat_barrier([1])
    for number in range(4):
        churn(rows.up, items(range(30), n=number), 15, random.Random(number))
        rows.step(5)
        rows.up.repeat_barrier([number % 2])
    rows.finish(5)


def test_repeated_barriers_among_many_that_wait_for_several_batches(scene: MakeScene) -> None:
    rows = scene(items(range(20)), table=SMALL)
    rows.service.max_records = 1
    for number in range(6):
        rows.up.barrier()
        rows.up.repeat_barrier([0, 1])
        churn(rows.up, items(range(30), n=number), 15, random.Random(number))
    rows.up.barrier()
    rows.service.read()
    assert rows.service.run(4) == 7
    rows.finish(5)


def test_barriers_are_passed_on_once_a_partition_with_their_own_count(scene: MakeScene) -> None:
    rows = scene(table=SMALL, output_partitions=4, partitions=3)
    for _ in range(5):
        rows.step()
    for partition in range(4):
        passed = [(b.curr, b.prev, b.kind, b.partitions) for b in rows.barriers(partition)]
        assert passed == [(b.curr, b.prev, b.kind, 4) for b in rows.up.barriers]
