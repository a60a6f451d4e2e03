"""A topic up to a barrier that all partitions have, also where partitions begin with different ones."""

from __future__ import annotations

import pytest

from schemas.errors import Code, TopicError
from schemas.records import Barrier, BarrierKind, Change, Op
from streaming.reading.topic import Complete, Record


def change(partition: int, key: int) -> Record:
    return Record(f"{partition}", partition, 0, (key,), Change(Op.INSERT, None, (key,)))


def barrier(partition: int, epoch: int, partitions: int = 2) -> Record:
    body = Barrier(epoch, epoch - 1, BarrierKind.CHECKPOINT, partitions, 0)
    return Record(f"{partition}", partition, epoch, None, body)


def keys_upto(complete: Complete, records: list[Record]) -> dict[int, list[object]]:
    """By the barrier that they were given with, the keys of changes."""
    found: dict[int, list[object]] = {}
    for record in records:
        given = [each.key for each in complete.add(record) if each.key is not None]
        if given:
            found[complete.epoch] = sorted(key[0] for key in given)
    return found


def test_partitions_that_were_trimmed_apart_are_joined_up_to_the_first_barrier_of_all() -> None:
    records = [
        change(0, 1),
        barrier(0, 5),
        change(0, 2),
        barrier(0, 6),
        change(0, 3),
        barrier(0, 7),
        change(1, 11),
        change(1, 12),
        barrier(1, 7),
        change(1, 13),
        barrier(1, 8),
        change(0, 4),
        barrier(0, 8),
    ]
    complete = Complete(2)
    assert keys_upto(complete, records) == {7: [1, 2, 3, 11, 12], 8: [4, 13]}


def test_what_is_behind_the_barrier_that_was_asked_for_is_not_given() -> None:
    records = [
        change(0, 1),
        barrier(0, 1),
        change(1, 2),
        barrier(1, 1),
        change(0, 3),
        barrier(0, 2),
        barrier(1, 2),
    ]
    assert keys_upto(Complete(2, until=1), records) == {1: [1, 2]}


def test_a_partition_that_is_added_is_waited_for_from_the_barrier_on_that_says_so() -> None:
    records = [change(2, 21), *(each for p in (0, 1) for each in (change(p, p), barrier(p, 1)))]
    records += [each for p in (0, 1) for each in (change(p, 10 + p), barrier(p, 2, 3))]
    complete = Complete(3)
    assert keys_upto(complete, records) == {1: [0, 1]}
    assert keys_upto(complete, [barrier(2, 2, 3)]) == {2: [10, 11, 21]}
    with pytest.raises(TopicError) as caught:
        keys_upto(complete, [barrier(0, 3, 4)])
    assert caught.value.code is Code.PARTITIONS_CHANGED
