"""One upstream has the barriers of one owner: a state, or the injector alone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from schemas.errors import Code, Fenced, TopicError
from schemas.records import Drop, Mutation, Pause
from schemas.topics import UpstreamTopics
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin
from streaming.source.barriers.injecting.control_topic import injector_id
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import DataTopicTarget
from tests.kit.driven_injector import request_for
from tests.kit.real import await_condition

Topic = Callable[..., str]


def of(kafka: KafkaSettings, topic: str, owner: str, interval_ms: int = 100) -> BarrierInjector:
    return BarrierInjector(kafka, DataTopicTarget(topic), interval_ms, owner=owner, is_ours=lambda: True)


def last_mutation(injector: BarrierInjector) -> Mutation | None:
    return None if injector.last_barrier is None else injector.last_barrier.mutation


def refused(injector: BarrierInjector) -> TopicError:
    with pytest.raises(TopicError) as caught:
        injector.start()
    injector.stop()
    assert caught.value.code is Code.BARRIERS_TAKEN
    return caught.value


def test_a_second_state_is_refused_while_the_first_lives_which_is_not_disturbed(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic(partitions=2)
    with of(kafka, name, "first") as first:
        before = first.last_barrier
        error = refused(of(kafka, name, "second"))
        assert "barriers of" in error.found
        refused(BarrierInjector(kafka, DataTopicTarget(name), 100))
        assert first.last_barrier != before
        assert first.failure is None


def test_a_successor_of_the_same_state_is_let_in_at_once(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    with BarrierInjector(kafka, DataTopicTarget(name), 3_600_000, owner="first") as first:
        with of(kafka, name, "first", 3_600_000) as second:
            assert second.last_barrier is not None
        with pytest.raises(Fenced):
            first.inject_one()


def test_a_new_state_goes_on_where_another_is_gone(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    with of(kafka, name, "first") as first:
        pass
    with of(kafka, name, "second") as second:
        assert first.last_barrier is not None
        assert second.last_barrier is not None
        assert second.last_barrier.prev == first.last_barrier.curr
        refused(of(kafka, name, "first"))


def test_an_owner_with_long_intervals_is_not_waited_for(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    first = of(kafka, name, "first", 3_600_000)
    first.inject_one()
    first.stop()
    assert "try again in 1080" in refused(of(kafka, name, "second")).next_step


def test_an_owner_that_lost_its_claim_while_it_was_away_ends_when_it_is_back(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic()
    away = threading.Event()
    clock = _HeldClock(away)
    first = BarrierInjector(
        kafka, DataTopicTarget(name), 100, owner="first", is_ours=lambda: True, clock=clock
    )
    first.start()
    away.set()
    assert clock.held.wait(30)
    with of(kafka, name, "second") as second:
        away.clear()
        clock.go_on.set()
        assert first.wait(60)
        assert isinstance(first.failure, TopicError)
        assert first.failure.code is Code.BARRIERS_TAKEN
        second.check()
    first.stop()


class _HeldClock:
    """Stands still, and its thread with it, once `away` is set."""

    def __init__(self, away: threading.Event) -> None:
        self._away, self.held, self.go_on = away, threading.Event(), threading.Event()

    def __call__(self) -> int:
        from streaming.source.barriers.injecting.injector import unix_ms

        if self._away.is_set():
            self.held.set()
            assert self.go_on.wait(60)
        return unix_ms()


def test_of_two_new_states_at_one_moment_one_is_let_in(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    rivals = [of(kafka, name, owner) for owner in ("first", "second")]
    failures: list[BaseException] = []

    def start(rival: BarrierInjector) -> None:
        try:
            rival.start()
        except TopicError as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=(rival,)) for rival in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = [rival for rival in rivals if rival.wait(0)]
    if not ended:  # both got in; the one that was fenced finds the other's claim at its next barrier
        while not ended:
            ended = [rival for rival in rivals if rival.wait(0.1)]
        failures += [rival.failure for rival in ended if rival.failure]
    assert [error.code for error in failures if isinstance(error, TopicError)] == [Code.BARRIERS_TAKEN]
    for rival in rivals:
        rival.stop()


def test_requests_are_not_carried_out_again_when_kafka_has_forgotten_how_far_they_were_taken(
    kafka: KafkaSettings, topic: Topic
) -> None:
    """Kafka keeps a group's offsets for a week without a commit."""
    name = topic()
    with of(kafka, name, "first", 3_600_000) as first:
        request_for(kafka, name, Pause("a"), Drop("b"))
        await_condition(lambda: last_mutation(first) == Drop("b"), "both requests")
        assert first.inject_one().mutation is None
    client = admin(kafka)
    group = injector_id(UpstreamTopics.of(name))
    client.delete_consumer_groups([group])[group].result(15)
    request_for(kafka, name, Pause("c"))
    with of(kafka, name, "first", 3_600_000) as second:
        assert second.last_barrier is not None
        assert second.last_barrier.mutation == Pause("c")
        assert second.inject_one().mutation is None


def test_the_claim_is_there_from_the_first_barrier_on(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    of(kafka, name, "first").inject_one()
    consumer = Consumer(kafka.consumer(**{"group.id": injector_id(UpstreamTopics.of(name))}))
    [found] = consumer.committed([TopicPartition(UpstreamTopics.of(name).control, 0)], timeout=15)
    consumer.close()
    assert found.offset == 0
    assert '"owner": "first"' in str(found.metadata)
