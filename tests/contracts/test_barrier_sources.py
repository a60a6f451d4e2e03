"""Barrier sources, real and in memory, keep to all that a service relies on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

import pytest

from schemas.errors import Code, Fenced, InputError
from schemas.kinds.configs import BARRIER_KINDS
from state.values.aligned import AlignedBarrier
from streaming.source.barriers.kinds import SOURCES
from streaming.source.barriers.source import BarrierSource
from tests.contracts.kafka_upstreams import Kafka, KafkaBeside, KafkaInjected, KafkaInjectedBeside
from tests.contracts.upstreams import (
    FAR,
    PARTITIONS,
    Memory,
    MemoryBeside,
    MemoryInjected,
    TestUpstream,
    await_end,
)
from tests.kit.barriers import NO_RECORDS

SCRIPT = ((2, 0), (0, 3), (0, 0), (5, 1))
"""Records of each partition before each barrier."""
REAL = [pytest.mark.kafka, pytest.mark.spark]
INJECTED = [
    MemoryInjected,
    pytest.param(KafkaInjected, marks=REAL),
    pytest.param(KafkaInjectedBeside, marks=pytest.mark.kafka),
]
EMBEDDED = [
    Memory,
    MemoryBeside,
    pytest.param(Kafka, marks=REAL),
    pytest.param(KafkaBeside, marks=pytest.mark.kafka),
]


@pytest.fixture(params=[*EMBEDDED, *INJECTED])
def upstream(request: pytest.FixtureRequest) -> Iterator[TestUpstream]:
    if not issubclass(request.param, Kafka):
        yield request.param()
        return
    topic = request.getfixturevalue("topic")(partitions=PARTITIONS)
    made = request.param(
        request.getfixturevalue("bootstrap"), topic, lambda: request.getfixturevalue("spark")
    )
    yield made
    made.close()


@contextmanager
def begun(
    upstream: TestUpstream, position: AlignedBarrier | None = None, first: Sequence[int] | None = None
) -> Iterator[tuple[BarrierSource, list[AlignedBarrier]]]:
    """A source that has begun at a position, and what it gave; closed at the end of the block."""
    source = upstream.source()
    source.start()
    try:
        yield source, source.begin(position, first or (position.ends if position else [0] * PARTITIONS))
    finally:
        source.close()


def play(upstream: TestUpstream) -> tuple[list[AlignedBarrier], list[tuple[int, int]]]:
    """The barriers of the script, and the records of its last interval, as (partition, offset)."""
    written: list[tuple[int, int]] = []
    with begun(upstream) as (source, found):
        for counts in SCRIPT:
            found += upstream.more(source)
            before = found[-1].ends if found else (0,) * PARTITIONS
            written = [(p, upstream.data(p)) for p, count in enumerate(counts) for _ in range(count)]
            upstream.barrier()
            found += upstream.more(source)
            assert all(before[p] <= offset < found[-1].ends[p] for p, offset in written)
        assert upstream.more(source) == []
        assert {barrier.curr for barrier, _ in source.newest() if barrier} == {found[-1].epoch}
        assert [waiting for _, waiting in source.newest()] == [0] * PARTITIONS
    return found, written


def test_a_source_that_waits_needs_no_micro_batch_to_know_of_a_barrier(upstream: TestUpstream) -> None:
    with begun(upstream) as (source, found):
        found += upstream.more(source)
        assert source.waits is (upstream.injects or not upstream.in_data)
        if source.waits:
            with ThreadPoolExecutor(1) as stream:
                waiting = stream.submit(source.aligned, NO_RECORDS)
                upstream.barrier()
                found += waiting.result(30)
            assert is_chain(found)
            assert len(found) == 1 + upstream.injects


def test_a_barrier_that_is_committed_counts_until_it_is_taken(upstream: TestUpstream) -> None:
    """However long Spark takes to ask for it: the service is at work then, and does not wait for barriers."""
    with begun(upstream) as (source, _):
        upstream.more(source)
        assert source.untaken == 0
        upstream.barrier()
        assert source.untaken == upstream.injects  # of others' barriers nothing is known before they are read
        upstream.more(source)
        assert source.untaken == 0


def is_chain(barriers: Sequence[AlignedBarrier], prev: int = 0) -> bool:
    return [each.barrier.prev for each in barriers] == [prev, *(each.epoch for each in barriers)][:-1]


def test_barriers_come_in_order_once_and_end_behind_the_data_that_they_close(upstream: TestUpstream) -> None:
    found, _ = play(upstream)
    assert is_chain(found)
    assert len(found) == len(SCRIPT) + upstream.injects
    for one, other in pairwise(found):
        assert all(end <= later for end, later in zip(one.ends, other.ends, strict=True))
    assert {each.in_data for each in found} == {upstream.in_data}


def test_a_barrier_that_nothing_came_before_has_the_same_ends_unless_it_stands_in_the_data_itself(
    upstream: TestUpstream,
) -> None:
    found, _ = play(upstream)
    before, idle = found[-3:-1]
    assert (before.ends == idle.ends) is not upstream.in_data


def test_from_every_position_the_same_barriers_come_again(upstream: TestUpstream) -> None:
    found, _ = play(upstream)
    for done in range(len(found) + 1):
        position = found[done - 1] if done else None
        with begun(upstream, position) as (source, again):
            again += upstream.more(source)
            assert again[: len(found) - done] == found[done:]
            assert is_chain(again, position.epoch if position else 0)
            assert upstream.injects or again == found[done:]


def test_an_interval_of_which_a_part_was_handled_ends_with_the_same_barrier(upstream: TestUpstream) -> None:
    found, written = play(upstream)
    first = list(found[-2].ends)
    for partition, offset in written[:3]:
        first[partition] = offset + 1
    with begun(upstream, found[-2], first) as (source, again):
        assert (again + upstream.more(source))[0] == found[-1]


def test_a_barrier_that_follows_no_other_is_refused(upstream: TestUpstream) -> None:
    with begun(upstream) as (source, _):
        upstream.barrier()
        upstream.more(source)
        upstream.break_chain()
        with pytest.raises(InputError) as caught:
            upstream.more(source)
    assert caught.value.code is Code.BARRIER_GAP


@pytest.mark.parametrize("is_behind_the_end", [False, True])
def test_records_that_are_lost_are_noticed_at_the_beginning(
    upstream: TestUpstream, is_behind_the_end: bool
) -> None:
    play(upstream)
    position = AlignedBarrier(FAR, (1_000,) * PARTITIONS) if is_behind_the_end else None
    if not is_behind_the_end:
        upstream.lose()
    with pytest.raises(InputError) as caught, begun(upstream, position):
        pass
    assert caught.value.code is Code.DATA_LOST


def test_a_wait_for_barriers_can_be_ended_and_closing_twice_is_closing(upstream: TestUpstream) -> None:
    with begun(upstream) as (source, _), ThreadPoolExecutor(1) as thread:
        upstream.more(source)
        wait = thread.submit(source.aligned, upstream.records())
        source.wakeup()
        assert wait.result(60) == []
        source.check()
        source.close()


@pytest.mark.parametrize("upstream", INJECTED, indirect=True)
def test_a_source_whose_writer_another_instance_has_fenced_says_so(upstream: TestUpstream) -> None:
    upstream.hurry()
    with begun(upstream) as (source, _):
        source.check()
        upstream.fence()
        assert isinstance(await_end(source), Fenced)


def test_every_kind_that_can_be_configured_has_a_source() -> None:
    assert set(BARRIER_KINDS.values()) == set(SOURCES)
    for name, kind in BARRIER_KINDS.items():
        assert kind(kind=name).kind == name
