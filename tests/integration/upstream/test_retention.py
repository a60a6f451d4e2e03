"""Retention of records that were not read yet, on a broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from schemas.errors import Code, InputError
from schemas.records import Barrier
from schemas.topics import UpstreamTopics
from state.values.aligned import AlignedBarrier
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import watermarks
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import DataTopicTarget, SeparateTopicTarget
from streaming.source.barriers.separate_topic import FollowedTopic, SeparateBarriers
from streaming.source.retention import Retention
from streaming.source.upstream_checks import UpstreamGuard, UpstreamIdentity
from tests.kit.kafka_topics import remove_beginning

Topic = Callable[..., str]
HOUR_MS = 3_600_000


def fill(kafka: KafkaSettings, topic: str, partition: int, *written_ms: int) -> None:
    producer = Producer(kafka.producer())
    for each in written_ms:
        producer.produce(topic, b"row", b"key", partition, timestamp=each)
    assert producer.flush(30) == 0


def test_the_margin_is_that_of_the_first_record_that_was_not_read_and_is_warned_of_once(
    bootstrap: str, topic: Topic
) -> None:
    kafka, now_ms = KafkaSettings(bootstrap), int(time.time() * 1_000)
    kept, whole = topic(2, config={"retention.ms": str(3 * HOUR_MS)}), topic(2)
    for name in (kept, whole):
        fill(kafka, name, 0, now_ms - HOUR_MS, now_ms)
        fill(kafka, name, 1, now_ms)
    clock_s = [now_ms / 1_000]
    marks = watermarks(kafka, kept)
    assert Retention(kafka, whole).look(marks, (0, 0)) == ()
    retention = Retention(kafka, kept, every_s=0, wall_s=lambda: clock_s[0])

    def margins(*next_offsets: int) -> list[float]:
        return [each.seconds for each in retention.look(marks, next_offsets)]

    with capture_logs() as logs:
        assert margins(0, 0) == pytest.approx([7_200, 10_800])
        assert margins(1, 1) == pytest.approx([10_800, 10_800])  # nothing is left in the second partition
        clock_s[0] += 7_000
        assert margins(0, 1) == pytest.approx([200, 10_800])
        clock_s[0] += 1_000
        assert margins(0, 1) == pytest.approx([-800, 10_800])
        assert margins(2, 1) == pytest.approx([10_800, 10_800])
    assert [line["event"] for line in logs] == ["retention_margin_small", "retention_margin_again"]
    assert (logs[0]["where"], logs[0]["margin_s"], logs[0]["kept_s"]) == (f"{kept}-0@0", 200, 10_800)


def test_it_asks_again_after_a_while_only(bootstrap: str, topic: Topic) -> None:
    kafka = KafkaSettings(bootstrap)
    name = topic(1, config={"retention.ms": str(HOUR_MS)})
    fill(kafka, name, 0, int(time.time() * 1_000))
    marks, retention = watermarks(kafka, name), Retention(kafka, name)
    found = retention.look(marks, (0,))
    assert retention.look(marks, (1,)) is found


def test_what_was_read_may_go_and_what_was_not_is_named(bootstrap: str, topic: Topic) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(2)
    fill(kafka, name, 0, *[int(time.time() * 1_000)] * 5)
    guard = UpstreamGuard(kafka, UpstreamIdentity.of(kafka, name), "state")
    remove_beginning(bootstrap, name, 3)
    guard.look((3, 0))
    with pytest.raises(InputError) as caught:
        guard.look((1, 0))
    assert (caught.value.code, caught.value.where) == (Code.DATA_LOST, f"{name}-0@1")
    assert caught.value.found == (
        "a partition without its offsets 1 to 2; whether a record was among them, or ends of transactions alone, "
        "can't be known any more"
    )


def test_an_idle_topic_that_retention_empties_lacks_nothing_where_only_ends_of_transactions_were(
    bootstrap: str, topic: Topic
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(2)
    BarrierInjector(kafka, DataTopicTarget(name), HOUR_MS).inject_one()
    guard = UpstreamGuard(kafka, UpstreamIdentity.of(kafka, name), "state")
    behind_barriers = (1, 1)
    for _ in range(2):
        guard.look(behind_barriers)
    remove_beginning(bootstrap, name, 2)
    assert [each.earliest for each in guard.look(behind_barriers)] == [2, 0]


def test_intervals_before_the_oldest_barrier_of_a_topic_count_as_one(bootstrap: str, topic: Topic) -> None:
    kafka, topics = KafkaSettings(bootstrap), UpstreamTopics.of(topic(2), barriers=topic(2))
    injector = BarrierInjector(kafka, SeparateTopicTarget(topics), HOUR_MS)
    first, second, third, fourth = (injector.inject_one() for _ in range(4))
    remove_beginning(bootstrap, topics.with_barriers, 2, partition=0)
    remove_beginning(bootstrap, topics.with_barriers, 4, partition=1)

    def begun(position: Barrier | None) -> list[tuple[int, int]]:
        source = SeparateBarriers(FollowedTopic(kafka, topics, 2, no_spark), 2)
        start = None if position is None else AlignedBarrier(position, (0, 0), in_data=False)
        with closing(source):
            return [(each.barrier.prev, each.epoch) for each in source.begin(start, (0, 0))]

    rest = [(third.curr, fourth.curr)]
    assert begun(second) == [(second.curr, third.curr), *rest]
    assert begun(first) == [(first.curr, third.curr), *rest]
    assert begun(None) == [(second.curr, third.curr), *rest]
    injector.stop()


def no_spark() -> SparkSession:
    raise AssertionError("nothing is read by Spark here")
