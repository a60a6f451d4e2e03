"""The injector on a real broker: continuity, fencing, atomicity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from schemas.errors import Code, EnvironmentProblem, Fenced, OutcomeUnknown, TopicError
from schemas.records import BarrierKind, Pause
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic, watermarks
from streaming.kafka.transactions import TransactionalProducer
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import DataTopicTarget
from tests.kit.driven_injector import HOUR_MS, barriers_in, injector, request_for, write
from tests.kit.real import await_condition

Topic = Callable[..., str]


def test_the_first_barrier_is_initial_and_each_later_one_follows_the_one_before(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic(partitions=3)
    with injector(kafka, name) as driven:
        sent = [driven.inject_one() for _ in range(4)]
    assert [barrier.prev for barrier in sent] == [0, *(barrier.curr for barrier in sent[:-1])]
    assert [barrier.kind for barrier in sent] == [BarrierKind.INITIAL] + [BarrierKind.CHECKPOINT] * 3
    assert barriers_in(kafka, name) == [sent] * 3


def test_a_restart_goes_on_from_the_last_barrier_even_behind_many_records(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic(partitions=2)
    with injector(kafka, name) as driven:
        driven.inject_one()
        last = driven.inject_one()
    write(kafka, name, *(b"%d" % n for n in range(5_000)))
    with injector(kafka, name) as driven:
        assert driven.inject_one().prev == last.curr


def test_a_clock_that_was_set_back_still_gives_rising_epochs(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    clock = iter([1_800_000_000_000, 1_700_000_000_000, 1_700_000_000_001])
    driven = BarrierInjector(kafka, DataTopicTarget(name), HOUR_MS, clock=lambda: next(clock))
    sent = [driven.inject_one() for _ in range(3)]
    driven.stop()
    assert sent[0].curr < sent[1].curr < sent[2].curr


def test_a_second_injector_fences_the_first(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic(partitions=2)
    with injector(kafka, name) as first, injector(kafka, name) as second:
        before = first.inject_one()
        after = second.inject_one()
        with pytest.raises(Fenced):
            first.inject_one()
        assert after.prev == before.curr
    assert barriers_in(kafka, name) == [[before, after]] * 2


def test_a_running_injector_that_is_fenced_ends_and_says_so(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    with BarrierInjector(kafka, DataTopicTarget(name), 50) as running, injector(kafka, name) as second:
        second.inject_one()
        assert running.wait(30)
        assert isinstance(running.failure, Fenced)
        with pytest.raises(Fenced):
            running.check()


def test_a_barrier_reaches_all_partitions_or_none(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic(partitions=4)
    with injector(kafka, name) as driven:
        driven.inject_one()
        driven.inject_one()
    # One record and one commit marker for each partition and barrier: a second transaction would leave more.
    assert [(marks.stable, marks.high) for marks in watermarks(kafka, name)] == [(4, 4)] * 4


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_of_unknown_outcome_gives_one_barrier(
    kafka: KafkaSettings, topic: Topic, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    name = topic(partitions=2)
    commit = TransactionalProducer._commit
    lost: list[int] = []

    def lose_the_answer(transactions: TransactionalProducer) -> None:
        if committed or lost:
            commit(transactions)
        if not lost:
            lost.append(1)
            raise OutcomeUnknown(Code.OUTCOME_UNKNOWN, found="", expected="", next_step="")

    with injector(kafka, name) as driven:
        first = driven.inject_one()
        request_for(kafka, name, Pause("a"))
        monkeypatch.setattr(TransactionalProducer, "_commit", lose_the_answer)
        second = driven.inject_one()
        third = driven.inject_one()
    assert [barrier.mutation for barrier in (first, second, third)] == [None, Pause("a"), None]
    assert barriers_in(kafka, name) == [[first, second, third]] * 2


def test_the_thread_keeps_to_its_schedule_and_stops_cleanly(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic(partitions=2)
    with BarrierInjector(kafka, DataTopicTarget(name), 100) as running:
        while running.last_barrier is None or len(barriers_in(kafka, name)[0]) < 5:
            assert not running.wait(0.05)
    assert running.failure is None
    assert running.wait(0)
    partitions = barriers_in(kafka, name)
    assert partitions[0] == partitions[1]
    # At most one barrier an interval: injected_at may jitter, but n barriers take about n - 1 intervals.
    span_ms = partitions[0][-1].injected_at_ms - partitions[0][0].injected_at_ms
    assert span_ms >= (len(partitions[0]) - 1) * 100 - 100


@pytest.mark.parametrize("again", [False, True])
def test_partitions_that_are_added_get_the_next_barrier(
    kafka: KafkaSettings, topic: Topic, again: bool
) -> None:
    name = topic(partitions=1)
    with injector(kafka, name) as driven:
        first = driven.inject_one()
        create_topic(kafka, name, 3, gains=True)
        if again:
            driven.stop()
        second = driven.inject_one()
    assert (first.partitions, second.partitions, second.prev) == (1, 3, first.curr)
    assert barriers_in(kafka, name) == [[first, second], [second], [second]]


def test_a_client_that_gets_no_answer_any_more_is_replaced(
    kafka: KafkaSettings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen after a broker had stalled for a minute: it answered all others, but for 15 minutes no barrier came."""
    name, dead = topic(), list[AdminClient]()

    class Stalled(AdminClient):
        def list_topics(self, *args: Any, **kwargs: Any) -> Any:
            if self in dead:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return super().list_topics(*args, **kwargs)

    monkeypatch.setattr("streaming.kafka.topics.AdminClient", Stalled)
    with injector(kafka, name) as driven:
        first = driven.inject_one()
        assert driven._session is not None
        dead.append(driven._session._admin)
        with pytest.raises(EnvironmentProblem):
            driven.inject_one()
        second = driven.inject_one()
    assert barriers_in(kafka, name) == [[first, second]]


def test_a_missing_upstream_is_an_error_at_the_start(kafka: KafkaSettings) -> None:
    with pytest.raises(TopicError) as caught:
        BarrierInjector(kafka, DataTopicTarget("nowhere"), HOUR_MS).start()
    assert caught.value.code is Code.TOPIC_MISSING


def test_a_barrier_that_is_asked_for_comes_at_once_and_the_interval_begins_anew(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic(partitions=1)
    with BarrierInjector(kafka, DataTopicTarget(name), HOUR_MS) as running:
        for count in (2, 3):
            assert running.last_barrier is not None
            running.hasten(running.last_barrier.curr)
            await_condition(lambda count=count: len(barriers_in(kafka, name)[0]) == count, "a barrier")  # type: ignore[misc]
