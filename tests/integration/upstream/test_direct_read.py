"""A lane reads a short batch itself, from a real topic: it gets what Spark would bring it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql import SparkSession

from schemas.formats.change import ChangeFormat
from schemas.records import BARRIER_HEADER, Change, Op
from schemas.table import declare
from state.columns import OFFSET, OP, PARTITION
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin, watermarks
from streaming.kafka.transactions import TransactionalProducer
from streaming.source import direct_read
from streaming.source.decoded import MARKED, decoded
from streaming.source.direct_read import DirectReader, UnreadError
from streaming.source.exchange import Exchange, unpacked
from streaming.source.kafka import UpstreamSource
from streaming.source.records import Records, Routes
from tests.kit.avro_codec import ChangeCodec, KeyCodec

pytestmark = pytest.mark.kafka

TABLE = declare(
    {"name": "t", "columns": {"id": "bigint", "note": "string"}, "primary_key": ["id"], "vnode_count": 16}
)
KEYS, CHANGES = KeyCodec(TABLE.key_columns), ChangeCodec(TABLE.columns)
Topic = Callable[..., str]


class _Aborted(Exception):
    pass


def put(producer: Producer, topic: str, number: int, *, partition: int = 0, note: str = "x") -> None:
    value = CHANGES.encode(Change(Op.INSERT, None, (number, note)))
    producer.produce(topic, value, KEYS.encode((number,)), partition=partition)


def ends(kafka: KafkaSettings, topic: str) -> tuple[int, ...]:
    return tuple(marks.stable for marks in watermarks(kafka, topic, client=admin(kafka)))


def read(kafka: KafkaSettings, topic: str, *, holds_barriers: bool = False) -> pa.RecordBatch:
    """The whole topic."""
    ranges = {number: (0, end) for number, end in enumerate(ends(kafka, topic))}
    return DirectReader(kafka, topic, TABLE, holds_barriers).decoded(ranges, ChangeFormat())


def places(rows: pa.RecordBatch) -> list[tuple[int, int]]:
    return sorted(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))


def test_committed_records_of_all_partitions_come_as_spark_reads_them(
    bootstrap: str, spark: SparkSession, topic: Topic
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=3)
    with TransactionalProducer(kafka, name) as transactions:
        for number in range(40):
            with transactions.transaction() as producer:
                put(producer, name, number, partition=number % 2)
        with suppress(_Aborted), transactions.transaction() as producer:
            put(producer, name, 99)
            producer.flush()
            raise _Aborted
    own = read(kafka, name)
    source, records = UpstreamSource(lambda: spark, kafka, name, holds_barriers=False), [0, 0, 0]
    exchange = Exchange(ChangeFormat(), TABLE, Routes(1, TABLE.vnode_count))
    blocks = source.exchanged(exchange, source.range(records, ends(kafka, name))).toArrow().to_batches()
    theirs = pa.Table.from_batches(decoded(each, ChangeFormat(), TABLE) for each in unpacked(blocks))
    rows, places_ = source.in_place(records, ends(kafka, name), 3)
    in_place = [
        decoded(Records.concatenated([each]), ChangeFormat(), TABLE) for each in rows.toArrow().to_batches()
    ]
    order = [(PARTITION, "ascending"), (OFFSET, "ascending")]
    assert own.num_rows == 40
    wanted = pa.Table.from_batches([own]).sort_by(order)
    assert wanted.equals(theirs.sort_by(order))
    assert wanted.equals(pa.Table.from_batches(in_place).sort_by(order))
    assert sorted(places_) == [0, 1, 2]


def test_marks_and_invalid_records_come_as_such(bootstrap: str, topic: Topic) -> None:
    kafka, name = KafkaSettings(bootstrap), topic()
    producer = Producer(kafka.producer())
    put(producer, name, 1)
    producer.produce(name, b"broken", KEYS.encode((2,)), partition=0)
    producer.produce(name, b"any", None, partition=0, headers={BARRIER_HEADER: b"9"})
    producer.flush()
    rows = read(kafka, name, holds_barriers=True)
    assert places(rows) == [(0, 0), (0, 1), (0, 2)]
    assert rows[OP].to_pylist() == [Op.INSERT, None, MARKED]
    # Where there are none, the header is its owner's, and the value no change.
    assert read(kafka, name)[OP].to_pylist() == [Op.INSERT, None, None]


def test_more_bytes_than_a_lane_should_hold_are_not_read(
    bootstrap: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_read, "_MOST_BYTES", 1_000)
    kafka, name = KafkaSettings(bootstrap), topic()
    producer = Producer(kafka.producer())
    put(producer, name, 1, note="x" * 900)
    producer.flush()
    assert read(kafka, name).num_rows == 1
    put(producer, name, 2, note="x" * 900)
    producer.flush()
    with pytest.raises(UnreadError):
        read(kafka, name)


def test_records_that_are_gone_are_left_to_spark_which_names_them(bootstrap: str, topic: Topic) -> None:
    kafka, name = KafkaSettings(bootstrap), topic()
    producer = Producer(kafka.producer())
    for number in range(3):
        put(producer, name, number)
    producer.flush()
    client = admin(kafka)
    [deletion] = client.delete_records([TopicPartition(name, 0, 2)]).values()
    deletion.result(30)
    with pytest.raises(UnreadError):
        read(kafka, name)
    source = DirectReader(kafka, name, TABLE, holds_barriers=False)
    rest = source.decoded({0: (2, 3)}, ChangeFormat())  # by a new consumer
    assert places(rest) == [(0, 2)]
