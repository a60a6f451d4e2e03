"""The look at the end of an output partition, on a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from unittest import mock

import pytest

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.errors import Code, TopicError
from schemas.records import BARRIER_HEADER, Barrier, BarrierKind
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.transactions import TransactionalProducer
from streaming.sink import kafka_reader as output
from streaming.sink.kafka_reader import LastBarrier
from streaming.sink.output import SinkPartition

pytestmark = pytest.mark.kafka


def last_barrier(kafka: KafkaSettings, topic: str, partition: int) -> int | None:
    """The last barrier of a partition, asked for as by a lane."""
    with RangeReader(kafka) as reader:
        (found,) = output.last_barriers(reader, [SinkPartition(topic, partition)]).values()
        return None if found is None else found.epoch


def checkpoint(curr: int) -> Barrier:
    return Barrier(curr, curr - 1, BarrierKind.CHECKPOINT, 1, 0)


def send_barrier(transactions: TransactionalProducer, topic: str, partition: int, barrier: Barrier) -> None:
    headers: dict[str, str | bytes | None] = {BARRIER_HEADER: barrier_header(barrier)}
    transactions.producer.produce(topic, encode_barrier(barrier), partition=partition, headers=headers)
    transactions.producer.flush()


def test_the_last_barrier_is_named_only_when_all_before_it_is_decided(
    bootstrap: str, topic: Callable[..., str]
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=2)
    barriers = [checkpoint(curr) for curr in (1, 2)]
    found: list[int | None] = []
    looking = threading.Thread(target=lambda: found.append(last_barrier(kafka, name, 0)))

    def send(transactions: TransactionalProducer, partition: int, barrier: Barrier) -> None:
        send_barrier(transactions, name, partition, barrier)

    with TransactionalProducer(kafka, f"{name}-0") as one, TransactionalProducer(kafka, f"{name}-1") as two:
        with one.transaction():
            send(one, 0, barriers[0])
            with two.transaction():  # another lane's id, as after a change of the number of lanes
                send(two, 0, barriers[1])
            looking.start()
            looking.join(0.5)
            assert found == []
        looking.join(30)
        assert found == [2]
        with one.transaction():  # what is open in another partition does not matter
            send(one, 1, barriers[0])
            assert last_barrier(kafka, name, 0) == 2


def test_what_is_behind_the_last_barrier_is_foreign(bootstrap: str, topic: Callable[..., str]) -> None:
    kafka, name = KafkaSettings(bootstrap), topic()
    assert last_barrier(kafka, name, 0) is None
    with TransactionalProducer(kafka, name) as transactions, transactions.transaction() as producer:
        producer.produce(name, b"mine", partition=0)
    with pytest.raises(TopicError) as caught:
        last_barrier(kafka, name, 0)
    assert (caught.value.code, caught.value.exit_status) == (Code.FOREIGN_RECORDS, 5)
    assert caught.value.where == f"{name}-0@0"


@pytest.mark.parametrize("partitions", [1, 7])
def test_the_partitions_of_a_topic_are_asked_for_at_once(
    bootstrap: str, topic: Callable[..., str], partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=partitions + 1)
    with TransactionalProducer(kafka, name) as transactions, transactions.transaction():
        for number in range(partitions):
            send_barrier(transactions, name, number, checkpoint(number + 1))
    looks = mock.Mock(wraps=RangeReader.read)
    monkeypatch.setattr(RangeReader, "read", lambda reader, *ranges: looks(reader, *ranges))
    places = [SinkPartition(name, number) for number in range(partitions + 1)]
    with RangeReader(kafka) as reader:
        found = output.last_barriers(reader, places)
    assert found == {place: LastBarrier(place.partition + 1) for place in places[:-1]} | {places[-1]: None}
    looks.assert_called_once()
