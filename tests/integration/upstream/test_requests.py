"""Requests that a real injector takes: each on one barrier, in order, whatever is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from schemas.records import Drop, Mutation, Pause, Resume, Stop, Throttle
from schemas.topics import UpstreamTopics
from streaming.control.client import send_request
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import topic_settings
from streaming.kafka.transactions import TransactionalProducer
from streaming.source.barriers.injecting.control_requests import (
    EndProcess,
    encode_suspended,
)
from streaming.source.barriers.injecting.injector import BarrierInjector, unix_ms
from streaming.source.barriers.injecting.target import DataTopicTarget
from tests.kit.driven_injector import HOUR_MS, barriers_in, injector, request_for, write
from tests.kit.real import await_condition

Topic = Callable[..., str]


def test_each_request_is_on_one_barrier_in_order_also_over_restarts(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic(partitions=2)
    wanted: list[Mutation] = [Throttle("a", 100), Pause(None), Resume(None), Drop("a"), Stop()]
    with injector(kafka, name) as driven:
        assert driven.inject_one().mutation is None
        request_for(kafka, name, *wanted)
        first = [driven.inject_one().mutation for _ in range(2)]
    with injector(kafka, name) as driven:
        rest = [driven.inject_one().mutation for _ in range(4)]
    assert first + rest == [*wanted, None]


def test_a_request_whose_barrier_was_not_committed_is_taken_again(
    kafka: KafkaSettings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    with injector(kafka, name) as driven:
        driven.inject_one()
        request_for(kafka, name, Pause("a"))
        with monkeypatch.context() as patched:
            patched.setattr(TransactionalProducer, "_commit", _die)
            with pytest.raises(ZeroDivisionError):
                driven.inject_one()
        assert driven.inject_one().mutation == Pause("a")
        assert driven.inject_one().mutation is None


def _die(_: TransactionalProducer) -> None:
    raise ZeroDivisionError


def test_a_request_that_is_older_than_it_allows_is_refused_and_one_without_a_limit_is_taken(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic()
    later = iter([unix_ms(), unix_ms() + 40_000, unix_ms() + 41_000])
    control = UpstreamTopics.of(name).control
    with injector(kafka, name, clock=lambda: next(later)) as driven:
        driven.inject_one()
        send_request(kafka, control, Pause("old"), timeout_s=30)
        send_request(kafka, control, Pause("young"), timeout_s=3_600)
        request_for(kafka, name, Pause("any"))
        with capture_logs() as lines:
            taken = [driven.inject_one().mutation, driven.inject_one().mutation]
    assert taken == [Pause("young"), Pause("any")]
    (refused,) = [line for line in lines if line["event"] == "request_refused"]
    assert refused["mutation"] == "Pause"
    assert re.fullmatch(r"it is \d+ s old, and was to be taken within 30 s", refused["reason"])
    assert topic_settings(kafka, control)["message.timestamp.type"] == "LogAppendTime"


@pytest.mark.parametrize("error", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_group_that_nobody_coordinates_yet_is_asked_for_again(
    kafka: KafkaSettings, topic: Topic, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """A broker says so by chance, in the moments after its start; here it is made to."""
    name = topic()
    with injector(kafka, name) as driven:
        driven.inject_one()
        request_for(kafka, name, Pause("a"), Pause("b"))
        driven.inject_one()

    class Starting(Consumer):
        asked = 0

        def committed(self, *args: Any, **kwargs: Any) -> list[TopicPartition]:
            Starting.asked += 1
            if Starting.asked < 3:
                raise KafkaException(KafkaError(error))
            return super().committed(*args, **kwargs)

    monkeypatch.setattr("streaming.source.barriers.injecting.control_topic.Consumer", Starting)
    with injector(kafka, name) as driven:
        assert driven.inject_one().mutation == Pause("b")
    assert Starting.asked == 4  # before the one before is fenced, and after


def test_what_is_no_request_is_skipped_and_never_blocks(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    with injector(kafka, name) as driven:
        driven.inject_one()
        stop = json.dumps({"id": "1", "mutation": "Stop"}).encode()
        write(kafka, UpstreamTopics.of(name).control, b"{", b'{"id":"1","mutation":"Sotp"}', b"\xff", stop)
        assert driven.inject_one().mutation == Stop()
        write(kafka, UpstreamTopics.of(name).control, b"[]")
        assert driven.inject_one().mutation is None
    with injector(kafka, name) as driven:
        assert driven.inject_one().mutation is None


def test_requests_to_a_suspended_table_are_passed_over(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    with injector(kafka, name) as driven, capture_logs() as logs:
        driven.inject_one()
        stop = json.dumps({"id": "1", "mutation": "Stop"}).encode()
        write(kafka, UpstreamTopics.of(name).control, encode_suspended("0", EndProcess()), stop)
        assert driven.inject_one().mutation == Stop()
        assert driven.inject_one().mutation is None
    assert not [line for line in logs if line["event"] == "request_skipped"]


def test_a_mutation_given_by_hand_leaves_the_requests_for_later(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    with injector(kafka, name) as driven:
        driven.inject_one()
        request_for(kafka, name, Pause("a"))
        assert driven.inject_one(Drop("b")).mutation == Drop("b")
        assert driven.inject_one().mutation == Pause("a")


def test_a_request_does_not_wait_for_the_interval(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic(partitions=2)
    throttles = [Throttle("copy", limit) for limit in (1, 2, 3)]
    with BarrierInjector(kafka, DataTopicTarget(name), HOUR_MS):
        request_for(kafka, name, *throttles)
        await_condition(lambda: len(barriers_in(kafka, name)[1]) == 4, "a barrier for each request")
    assert [barrier.mutation for barrier in barriers_in(kafka, name)[1]] == [None, *throttles]


def test_a_request_from_before_the_start_is_taken_by_its_first_barrier_alone(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic(partitions=1)
    with injector(kafka, name) as driven:
        driven.inject_one()
        request_for(kafka, name, Pause(None))
    with BarrierInjector(kafka, DataTopicTarget(name), HOUR_MS):
        request_for(kafka, name, Resume(None))
        await_condition(lambda: barriers_in(kafka, name)[0][-1].mutation == Resume(None), "the later request")
    assert [barrier.mutation for barrier in barriers_in(kafka, name)[0]] == [None, Pause(None), Resume(None)]
