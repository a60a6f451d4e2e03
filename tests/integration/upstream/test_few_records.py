"""A lane reads a short batch itself, from a real topic: what it gets, and what it leaves to Spark."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from schemas.avro.codec import ChangeCodec, KeyCodec
from schemas.formats.change import ChangeFormat
from schemas.records import BARRIER_HEADER, Change, Op
from schemas.table import declare
from state.columns import OFFSET, PARTITION
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin, watermarks
from streaming.kafka.transactions import TransactionalProducer
from streaming.source import few_records
from streaming.source.decoded import VALUE
from streaming.source.few_records import FewRecords, UnfitError, UnreadError
from streaming.source.kafka import UpstreamSource

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


def read(
    kafka: KafkaSettings, topic: str, *, holds_barriers: bool = False, **left_out: Any
) -> pa.RecordBatch:
    """The whole topic."""
    ranges = {number: (0, end) for number, end in enumerate(ends(kafka, topic))}
    source = FewRecords(kafka, topic, TABLE, holds_barriers)
    return source.decoded(ranges, ChangeFormat(), **left_out)


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
    source = UpstreamSource(lambda: spark, kafka, name, TABLE, holds_barriers=False)
    rows = source.lane_rows(source.range([0, 0, 0], ends(kafka, name)), 1)
    theirs = rows.toArrow().cast(to_arrow_schema(rows.schema))
    order = [(PARTITION, "ascending"), (OFFSET, "ascending")]
    assert own.num_rows == 40
    assert pa.Table.from_batches([own]).sort_by(order).equals(theirs.sort_by(order).cast(own.schema))
    assert own[VALUE].null_count == 40


def test_markers_and_skipped_records_are_left_out_and_other_marks_are_unfit(
    bootstrap: str, topic: Topic
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic()
    producer = Producer(kafka.producer())
    put(producer, name, 1)
    producer.produce(name, b"broken", KEYS.encode((2,)), partition=0)
    producer.produce(name, b"any", None, partition=0, headers={BARRIER_HEADER: b"9"})
    producer.flush()
    left_out = {"markers": {(0, 2)}, "skipped": {(0, 1)}}
    assert places(read(kafka, name, holds_barriers=True, **left_out)) == [(0, 0)]
    for fewer in ({"markers": {(0, 2)}}, {"skipped": {(0, 1)}}):
        with pytest.raises(UnfitError):
            read(kafka, name, holds_barriers=True, **fewer)
    with pytest.raises(
        UnfitError
    ):  # where there are none, the header is its owner's, and the value no change
        read(kafka, name, markers={(0, 2)}, skipped={(0, 1)})


def test_more_bytes_than_a_lane_should_hold_are_unfit(
    bootstrap: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_records, "_MOST_BYTES", 1_000)
    kafka, name = KafkaSettings(bootstrap), topic()
    producer = Producer(kafka.producer())
    put(producer, name, 1, note="x" * 900)
    producer.flush()
    assert read(kafka, name).num_rows == 1
    put(producer, name, 2, note="x" * 900)
    producer.flush()
    with pytest.raises(UnreadError):
        read(kafka, name)
    assert read(kafka, name, by_columns=True).num_rows == 2


def test_records_that_are_gone_are_left_to_spark_which_names_them(bootstrap: str, topic: Topic) -> None:
    kafka, name = KafkaSettings(bootstrap), topic()
    producer = Producer(kafka.producer())
    for number in range(3):
        put(producer, name, number)
    producer.flush()
    client = admin(kafka)
    [deletion] = client.delete_records([TopicPartition(name, 0, 2)]).values()
    deletion.result(30)
    with pytest.raises(UnfitError):
        read(kafka, name)
    source = FewRecords(kafka, name, TABLE, holds_barriers=False)
    rest = source.decoded({0: (2, 3)}, ChangeFormat())  # by a new consumer
    assert places(rest) == [(0, 2)]
