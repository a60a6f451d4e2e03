"""The yardstick: Spark's own Kafka-to-Kafka pass-through, at-least-once, bytes copied as they are."""

from __future__ import annotations

import tempfile
import time

from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic, watermarks
from tests.kit.spark import spark_session


def passthrough_rows_per_s(kafka: KafkaSettings, upstream: str, output: str) -> float:
    """Rows per second of one warm run over the whole upstream topic, sink tuned for throughput.

    Measured from the start of the query to its end, after a first run over the same topic that warms the JVM.
    """
    partitions = len(watermarks(kafka, upstream))
    rows = sum(marks.stable for marks in watermarks(kafka, upstream))
    took = 0.0
    with spark_session() as spark:
        for number in range(2):
            target = f"{output}-{number}"
            create_topic(kafka, target, partitions)
            with tempfile.TemporaryDirectory() as checkpoint:
                records = (
                    spark.readStream.format("kafka")
                    .option("kafka.bootstrap.servers", kafka.bootstrap)
                    .option("kafka.fetch.max.wait.ms", "20")
                    .option("subscribe", upstream)
                    .option("startingOffsets", "earliest")
                    .load()
                )
                began = time.perf_counter()
                query = (
                    records.select("key", "value", "partition")
                    .writeStream.format("kafka")
                    .option("kafka.bootstrap.servers", kafka.bootstrap)
                    .option("kafka.linger.ms", "20")
                    .option("kafka.batch.size", "1000000")
                    .option("kafka.buffer.memory", "134217728")
                    .option("topic", target)
                    .option("checkpointLocation", checkpoint)
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
                took = time.perf_counter() - began
    return rows / took
