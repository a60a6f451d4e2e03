"""The injector on a real broker: continuity, fencing, atomicity, requests exactly once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from schemas.avro.codec import decode_barrier
from schemas.errors import Code, EnvironmentProblem, Fenced, OutcomeUnknown, TopicError
from schemas.records import Barrier, BarrierKind, Drop, Mutation, Pause, Resume, Stop, Throttle
from schemas.topics import UpstreamTopics
from streaming.control.client import send_request
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, location
from streaming.kafka.topics import create_topic, topic_settings, watermarks
from streaming.kafka.transactions import TransactionalProducer
from streaming.source.barriers.injecting.control_requests import (
    ControlRequest,
    EndProcess,
    encode_request,
    encode_suspended,
)
from streaming.source.barriers.injecting.injector import BarrierInjector, unix_ms
from streaming.source.barriers.injecting.target import DataTopicTarget
from tests.kit.real import await_condition

Topic = Callable[..., str]
HOUR_MS = 3_600_000


@contextmanager
def injector(
    kafka: KafkaSettings, topic: str, clock: Callable[[], int] = unix_ms
) -> Iterator[BarrierInjector]:
    """An injector that is driven barrier by barrier."""
    driven = BarrierInjector(kafka, DataTopicTarget(topic), HOUR_MS, clock=clock)
    yield driven
    driven.stop()


def barriers_in(kafka: KafkaSettings, topic: str) -> list[list[Barrier]]:
    """The committed barriers of each partition."""
    with RangeReader(kafka) as reader:
        ranges = {p: (marks.earliest, marks.high) for p, marks in enumerate(reader.watermarks(topic))}
        found: list[list[Barrier]] = [[] for _ in ranges]
        for chunk in reader.read(topic, ranges):
            for message in chunk:
                header = header_of(message, "barrier")
                if header is not None:
                    found[message.partition() or 0].append(
                        decode_barrier(header, message.value(), where=location(message))
                    )
    return found


def write(kafka: KafkaSettings, topic: str, *values: bytes) -> None:
    producer = Producer(kafka.producer())
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush()


def request_for(kafka: KafkaSettings, topic: str, *mutations: Mutation) -> None:
    write(
        kafka,
        UpstreamTopics.of(topic).control,
        *(encode_request(ControlRequest(str(n), m)) for n, m in enumerate(mutations)),
    )


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


def test_a_barrier_that_is_asked_for_comes_at_once_and_the_interval_begins_anew(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic(partitions=1)
    with BarrierInjector(kafka, DataTopicTarget(name), HOUR_MS) as running:
        for count in (2, 3):
            assert running.last_barrier is not None
            running.hasten(running.last_barrier.curr)
            await_condition(lambda count=count: len(barriers_in(kafka, name)[0]) == count, "a barrier")  # type: ignore[misc]
