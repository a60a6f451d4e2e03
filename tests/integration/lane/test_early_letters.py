"""Letters of a table without a job are written once; old barriers are deleted by partition, up to a full one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from confluent_kafka import Producer

from schemas.codes import Code
from schemas.kinds.full_barriers import PERIOD_MS
from schemas.settings.limits import Limits
from schemas.topics import UpstreamTopics
from state.values.plan import Parked
from streaming.kafka.barriers import BarrierCut, delete_barriers
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import header_of
from streaming.kafka.topics import watermarks
from streaming.sink.dead_letters import PLACE_HEADER, read_letters
from streaming.sink.kafka import TableLetters
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import Beside
from tests.kit.real import records

Topic = Callable[..., str]


def test_each_place_has_one_letter_however_often_it_is_written(bootstrap: str, topic: Topic) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(1)
    producer = Producer(kafka.producer())
    for number in range(4):
        producer.produce(name, b"v%d" % number, b"k", 0)
    producer.flush(30)
    letters = TableLetters(kafka, name, Limits(), partial(read_letters, kafka, name))
    first, second, third = (Parked(0, offset, Code.EMPTY_RECORD, 0) for offset in (0, 2, 3))
    letters.write([first], "one")
    letters.write([first, second], "one")
    letters.write([second, third], "another")
    letters.write([first, second, third], "one")
    [found] = records(kafka, letters.topic)
    assert [(header_of(each, PLACE_HEADER), each.value()) for each in found] == [
        (f"{name}-0@{offset}".encode(), b"v%d" % offset) for offset in (0, 2, 3)
    ]


def test_barriers_are_deleted_up_to_the_newest_full_one_that_is_old_enough(
    bootstrap: str, topic: Topic
) -> None:
    kafka, topics = KafkaSettings(bootstrap), UpstreamTopics.of(topic(2), barriers=topic(2))
    now_ms = [1_790_000_000_000 // PERIOD_MS * PERIOD_MS]
    injector = BarrierInjector(kafka, Beside(topics), 1_000, clock=lambda: now_ms[0])
    barriers = []
    for _ in range(8):
        barriers.append(injector.inject_one())
        now_ms[0] += PERIOD_MS // 2
    injector.stop()
    assert all(each.full for each in barriers)

    def begins() -> list[int]:
        return [each.earliest for each in watermarks(kafka, topics.with_barriers)]

    assert delete_barriers(kafka, topics.with_barriers, BarrierCut(barriers[1].curr, now_ms[0])) == 0
    assert delete_barriers(
        kafka, topics.with_barriers, BarrierCut(barriers[7].curr, barriers[5].injected_at_ms)
    )
    assert begins() == [8, 8], "the fifth barrier, each with a marker behind it"
    assert delete_barriers(kafka, topics.with_barriers, BarrierCut(barriers[3].curr, now_ms[0])) == 0
    assert delete_barriers(kafka, topics.with_barriers, BarrierCut(barriers[7].curr, now_ms[0])) == 8
    assert begins() == [12, 12]
