"""Topics of barriers don't grow for ever: old barriers are deleted, and every reader begins at a full one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Message

from schemas.kinds.lanes import parts_of
from streaming.kafka.barriers import BarrierCut, beside_barrier_in, delete_barriers
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import watermarks
from streaming.service.service import Service
from streaming.verify import sources
from streaming.verify.sources import shared_since
from tests.kit.folded import folded
from tests.kit.kafka_topics import remove_beginning
from tests.kit.real import Run, SetUp, Stage, await_condition, records
from tests.kit.real_upstream import version_of

STEP_MS, HOUR_MS = 45 * 60_000, 3_600_000
JOBS = {"name": "rows", "format": "upsert"}, {"name": "events", "format": "debezium", "filter": "id >= 3"}


def next_barrier(stage: Stage, run: Run, number: int) -> None:
    """Three quarters of an hour later, with a change or two before it."""
    stage.upstream.ahead_ms += STEP_MS
    stage.upstream.put(version_of(number % 7, number))
    if number % 3 == 0:
        stage.upstream.delete(number % 7)
    run.reach(stage.upstream.barrier())


def first_barriers(stage: Stage, number: int) -> list[Any]:
    topic = stage.config().jobs[number].with_barriers
    firsts = [part[0] for part in records(stage.upstream.kafka, topic)]
    return [found.barrier for message in firsts if (found := beside_barrier_in(message)) is not None]


def are_trimmed(stage: Stage, run: Run) -> bool:
    """Both outputs, behind one more batch: what is due is begun behind one."""
    run.reach(stage.upstream.barrier())
    names = [job.with_barriers for job in stage.config().jobs]
    return all(each.earliest > 0 for name in names for each in watermarks(stage.upstream.kafka, name))


def check(stage: Stage) -> None:
    stage.assert_lawful()
    assert folded(stage, number=0) == stage.upstream.rows


def rebuilt(stage: Stage, **how: Any) -> Run:
    service: Service = stage.service(**how)
    service.rebuild = True
    return Run(service)


@contextmanager
def deleted_meanwhile(kafka: KafkaSettings, topic: str, cut: BarrierCut) -> Iterator[None]:
    """Barriers are deleted once a judgement knows where the topics begin, and before it reads them."""
    begun = list[int]()

    def since(*arguments: Any) -> int | None:
        if not begun:
            begun.append(delete_barriers(kafka, topic, cut))
        return shared_since(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "shared_since", since)
        yield
    assert begun
    assert begun[0]


def test_old_barriers_are_deleted_and_readers_begin_at_a_full_one(set_up: SetUp) -> None:
    stage = set_up(*JOBS, beside=True)
    upstream, kafka = stage.upstream, stage.upstream.kafka
    for key in range(7):
        upstream.put(version_of(key))
    with stage.running(barriers_keep="1h") as run:
        run.reach(upstream.barrier())
        for number in range(5):
            next_barrier(stage, run, number)
        await_condition(lambda: are_trimmed(stage, run), "the deletion")
        assert run.is_complete("rows")
    for number in range(2):
        job = stage.config().jobs[number]
        for partition, barrier in enumerate(first_barriers(stage, number)):
            assert barrier.full
            assert [each.vnode for each in barrier.progress] == list(parts_of(job, partition))
            assert upstream.last is not None
            assert barrier.injected_at_ms <= upstream.last.injected_at_ms - HOUR_MS
    check(stage)
    with stage.running(barriers_keep="1h") as run:
        next_barrier(stage, run, 5)
    check(stage)

    # A state that is lost is made anew, by what is left of the barriers.
    run = rebuilt(stage, state="anew", barriers_keep="forever")
    next_barrier(stage, run, 6)
    run.stop()
    check(stage)
    # So it is where the upstream's own barriers are deleted as well, in one partition more than in the other.
    last = first_barriers(stage, 0)[0].curr
    assert upstream.topics.barriers is not None
    with deleted_meanwhile(kafka, upstream.topics.barriers, BarrierCut(last, 1 << 60)):
        check(stage)
    torn = beside_of(records(kafka, upstream.topics.barriers)[1])[2]
    remove_beginning(kafka.bootstrap, upstream.topics.barriers, torn, partition=1)
    check(stage)
    run = rebuilt(stage, state="once more", barriers_keep="forever")
    next_barrier(stage, run, 7)
    run.stop()
    check(stage)


def beside_of(messages: list[Message]) -> list[int]:
    """The offsets of barriers."""
    return [found.offset for message in messages if (found := beside_barrier_in(message)) is not None]
