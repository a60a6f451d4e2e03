"""A Kafka topic as Spark sees it: a stream of what comes, and ranges of offsets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from streaming.kafka.clients import KafkaSettings
from streaming.source.gaps import Gaps


class SparkTopic:
    """Committed records of one topic, as Spark reads them.

    Spark refuses offsets that the log no longer has, so a range that begins in one of the `gaps` begins behind it.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        kafka: KafkaSettings,
        topic: str,
        *,
        headers: bool,
        gaps: Gaps | None = None,
    ) -> None:
        self._gaps = Gaps() if gaps is None else gaps
        self._spark, self._kafka, self._topic, self._headers = spark, kafka, topic, headers
        self._ranges = f"backfill-{uuid.uuid4()}"

    def _options(self) -> dict[str, str]:
        return {
            **self._kafka.spark_options(),
            "kafka.isolation.level": "read_committed",
            # A task that reads up to the end of a partition would wait half a second for more.
            "kafka.fetch.max.wait.ms": "5",
            "failOnDataLoss": "true",
            # A topic that was deleted must not be created again, empty, by reading it.
            "kafka.allow.auto.create.topics": "false",
        }

    def stream(self, first: Sequence[int]) -> DataFrame:
        """The topic from first[p] of every partition p on."""
        return (
            self._spark()
            .readStream.format("kafka")
            .options(**self._options())
            .option("assign", self._partitions(range(len(first))))
            .option("startingOffsets", self._offsets(first, range(len(first))))
            .option("includeHeaders", str(self._headers).lower())
            .load()
        )

    def range(
        self,
        first: Sequence[int],
        end: Sequence[int],
        of: Sequence[int] | None = None,
        *,
        headers: bool = False,
    ) -> DataFrame:
        """The records of [first[p], end[p]) of every partition p, or only of those in `of`; with `headers` as asked."""
        wanted = range(len(first)) if of is None else of
        first = self._gaps.first(first)
        end = tuple(map(max, first, end))
        return (
            self._spark()
            .read.format("kafka")
            .options(**self._options())
            # Spark keeps consumers by this name, which nothing is committed under: one range goes on where the last
            # one ended, with what was fetched ahead. Without it every range makes new ones, 30 ms each.
            .option("kafka.group.id", self._ranges)
            .option("assign", self._partitions(wanted))
            .option("startingOffsets", self._offsets(first, wanted))
            .option("endingOffsets", self._offsets(end, wanted))
            .option("includeHeaders", str(self._headers or headers).lower())
            .load()
        )

    def range_in_place(
        self, first: Sequence[int], end: Sequence[int], *, headers: bool = False
    ) -> tuple[DataFrame, list[int]]:
        """The records of `range`, and the topic's partition that each of Spark's partitions, even an empty one, reads.

        Spark reads each in a task of its own, in an order that only its plan has. So it is planned here, and the frame
        is made from that plan: planning it a second time would cost one more admin client of Kafka.
        """
        records, session = self.range(first, end, headers=headers), self._spark()
        planned = records._jdf.queryExecution().toRdd()
        places = [part.offsetRange().topicPartition().partition() for part in planned.partitions()]
        frame = session._jsparkSession.internalCreateDataFrame(planned, records._jdf.schema(), False)
        return DataFrame(frame, session), places

    def _partitions(self, wanted: Sequence[int]) -> str:
        return json.dumps({self._topic: list(wanted)})

    def _offsets(self, offsets: Sequence[int], wanted: Sequence[int]) -> str:
        return json.dumps({self._topic: {str(number): offsets[number] for number in wanted}})
