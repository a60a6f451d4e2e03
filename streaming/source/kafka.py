"""The upstream topic as Spark sees it: a stream that is searched for barriers, and ranges between two barriers.

Where barriers stand in the data, the stream's own rows are only looked through for them, which costs no decoding. A
batch reads exactly the range from its first to its last barrier, so no row behind the last aligned barrier is ever
decoded, carried over or held; what the stream delivered too early is simply read when its barrier has come. At a start
some thousand records behind the last batch are searched without Spark, while its JVM comes up, so that the first batch
need not wait for the stream.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.avro.codec import MAX_BARRIER_BYTES
from schemas.kinds.lanes import share_of
from schemas.records import BARRIER_HEADER, RecordId
from state.values.aligned import AlignedBarrier, padded
from streaming.kafka.barriers import FoundBarrier, Marked, found_barrier, mark_of
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.runtime.session import mapped_in_arrow, run_job, sorted_rows
from streaming.source.exchange import BLOCK, BLOCK_ROWS, LANE_KEY, ORDER, Exchange
from streaming.source.records import HEADERS_FIELD, RAW_SCHEMA, TIME_FIELD
from streaming.source.retention import Gaps

_LOOK_RECORDS, _LOOK_BYTES = 200_000, 256 << 20
"""Limits of a search without Spark: about a second, less than the start of Spark."""


class UpstreamSource:
    """The upstream topic: its committed records, as Spark reads them.

    `left_out` are records, (partition, offset), that an operator named: a barrier among them is none. A topic that
    holds no barriers is not looked through for marks of them; headers are its owner's. `begins` are the first offsets
    that are read, where they are not its first ones; `gaps` is what is known of the offsets behind the position.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        kafka: KafkaSettings,
        topic: str,
        left_out: frozenset[RecordId] = frozenset(),
        *,
        holds_barriers: bool = True,
        begins: Sequence[int] = (),
        gaps: Gaps | None = None,
    ) -> None:
        self.begins, self.gaps = tuple(begins), Gaps() if gaps is None else gaps
        self._spark, self._kafka, self._topic = spark, kafka, topic
        self._holds_barriers, self._left_out = holds_barriers, left_out
        self._ranges = f"backfill-{uuid.uuid4()}"

    @property
    def spark(self) -> SparkSession:
        """The session that it reads with; waits for it."""
        return self._spark()

    def stream(self, first: Sequence[int]) -> DataFrame:
        """The topic from first[p] of every partition p on."""
        return (
            self._spark()
            .readStream.format("kafka")
            .options(**self._options())
            .option("assign", self._partitions(range(len(first))))
            .option("startingOffsets", self._offsets(first, range(len(first))))
            .option("includeHeaders", str(self._holds_barriers).lower())
            .load()
        )

    def range(self, first: Sequence[int], end: Sequence[int], *, headers: bool = False) -> DataFrame:
        """The records of [first[p], end[p]) of every partition p, without those before `begins`."""
        return self._range(*self._begun(first, end), headers=headers)

    def find_barriers(self, first: Sequence[int]) -> tuple[list[FoundBarrier], tuple[int, ...]]:
        """Barriers from these offsets on, and the offsets from which each partition is to be read on. Without Spark.

        Those of a partition are in offset order. Ends early if there are very many records.
        Raises: as `found_barrier`; EnvironmentProblem; InputError(DATA_LOST).
        """
        found: list[FoundBarrier] = []
        records = size = 0
        with RangeReader(self._kafka) as reader:
            all_marks = reader.watermarks(self._topic)
            self.gaps.refuse_lost(self._topic, all_marks, first)
            next_offsets = list(self.gaps.first(first))
            ends = [marks.stable for marks in all_marks]
            for chunk in reader.read(self._topic, dict(enumerate(zip(next_offsets, ends, strict=False)))):
                for message in chunk:
                    partition, offset = located(message)
                    next_offsets[partition] = offset + 1
                    size += len(message)
                    if (mark := mark_of(message)) is not None:
                        found.append(found_barrier(self._topic, mark, self._left_out))
                records += len(chunk)
                if records >= _LOOK_RECORDS or size >= _LOOK_BYTES:
                    break
        return found, tuple(next_offsets)

    def barriers_in(self, records: DataFrame) -> Iterator[FoundBarrier]:
        """The barriers among some records, in offset order within each partition.

        Raises: InputError at the first that is none, as `found_barrier`; EnvironmentProblem(SPARK_FAILED).
        """
        marked, marks = self._marks
        found = run_job(records.where(marked).select(*marks).collect)
        for row in sorted(found, key=lambda row: (row["partition"], row["offset"])):
            header, value = (None if row[name] is None else bytes(row[name]) for name in ("header", "value"))
            place = row["partition"], row["offset"]
            record = Marked(place, value, row["size"] or 0, header, row["ambiguous"])
            yield found_barrier(self._topic, record, self._left_out)

    def exchanged(
        self, exchange: Exchange, records: DataFrame, history: Sequence[DataFrame] = ()
    ) -> DataFrame:
        """Records brought to their lanes, as blocks (`streaming.source.exchange.unpacked`), the only column.

        Spark partition i holds lane i, also when it is empty. Those of `history`, without what is marked as a barrier,
        are from before the batch. Where the exchange has `ends`, Spark sorts the blocks, on disk where they are many.
        """
        names, times = exchange.headers, exchange.moves_from is not None
        early = (self._unmarked(each, names, times=times) for each in history)
        raw = reduce(DataFrame.unionAll, (self._raw(records, names, times=times), *early))
        rows = mapped_in_arrow(raw, exchange.packed, BLOCK_ROWS).repartition(exchange.routes.lanes, LANE_KEY)
        if exchange.ends:
            rows = sorted_rows(rows, [F.col(name) for name in ORDER])
        return rows.select(BLOCK)

    def in_place(
        self,
        first: Sequence[int],
        end: Sequence[int],
        lanes: int,
        *,
        in_order_of: Sequence[AlignedBarrier] = (),
        history: Sequence[Sequence[tuple[int, int]]] = (),
        headers: tuple[str, ...] = (),
    ) -> tuple[DataFrame, Sequence[int]]:
        """Raw records (`streaming.source.records`), of which each lane reads those of a share of the partitions.

        Nothing is exchanged. There are no fewer partitions than lanes. `history` are ranges, one a partition, of
        records from before the batch; `in_order_of` the barriers of a batch whose records are to come by interval,
        partition and offset; `headers` the names of those that jobs pass on. Gives the lane of each of Spark's
        partitions, too.
        """
        count = len(first)
        if lanes == count and not history:
            records, places = self._range_in_place(*self._begun(first, end), headers=bool(headers))
            rows = self._raw(records, headers)
        else:
            own = (share_of(lane, lanes, count) for lane in range(lanes))
            shares = (self._share(first, end, share, history, headers) for share in own)
            rows, places = reduce(DataFrame.unionAll, shares), list(range(lanes))
        return (sorted_rows(rows, _order(in_order_of)) if in_order_of else rows), places

    def _share(
        self,
        first: Sequence[int],
        end: Sequence[int],
        share: Sequence[int],
        history: Sequence[Sequence[tuple[int, int]]],
        headers: tuple[str, ...],
    ) -> DataFrame:
        """The records of some partitions, in one partition of Spark's, also when there are none."""
        wanted = bool(headers)
        rows = self._raw(self._range(*self._begun(first, end), share, headers=wanted), headers)
        for layer in history:
            begins, ends = zip(*layer, strict=True)
            early = self._range(begins, ends, share, headers=wanted)
            rows = rows.unionAll(self._unmarked(early, headers))
        return rows.coalesce(1)

    def _range(
        self,
        first: Sequence[int],
        end: Sequence[int],
        of: Sequence[int] | None = None,
        *,
        headers: bool = False,
    ) -> DataFrame:
        """The records of [first[p], end[p]) of every partition p, or only of those in `of`; with `headers` as asked.

        Spark refuses offsets that the log no longer has, so a range that begins in one of the `gaps` begins behind it.
        """
        wanted = range(len(first)) if of is None else of
        first = self.gaps.first(first)
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
            .option("includeHeaders", str(self._holds_barriers or headers).lower())
            .load()
        )

    def _range_in_place(
        self, first: Sequence[int], end: Sequence[int], *, headers: bool = False
    ) -> tuple[DataFrame, list[int]]:
        """The records of `_range`, and the topic's partition that each of Spark's partitions, even an empty one, reads.

        Spark reads each in a task of its own, in an order that only its plan has. So it is planned here, and the frame
        is made from that plan: planning it a second time would cost one more admin client of Kafka.
        """
        records, session = self._range(first, end, headers=headers), self._spark()
        planned = records._jdf.queryExecution().toRdd()
        places = [part.offsetRange().topicPartition().partition() for part in planned.partitions()]
        frame = session._jsparkSession.internalCreateDataFrame(planned, records._jdf.schema(), False)
        return DataFrame(frame, session), places

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

    def _partitions(self, wanted: Sequence[int]) -> str:
        return json.dumps({self._topic: list(wanted)})

    def _offsets(self, offsets: Sequence[int], wanted: Sequence[int]) -> str:
        return json.dumps({self._topic: {str(number): offsets[number] for number in wanted}})

    def _begun(self, first: Sequence[int], end: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        return tuple(map(max, first, padded(self.begins, first))), end

    def _raw(self, records: DataFrame, headers: tuple[str, ...], *, times: bool = False) -> DataFrame:
        """The columns of `raw_schema`."""
        more = list[Column]()
        if headers:
            own = F.filter("headers", lambda header: header["key"].isin(*headers))
            more.append(own.alias(HEADERS_FIELD.name))
        if times:
            more.append(F.expr("unix_millis(timestamp)").alias(TIME_FIELD.name))
        return records.select(*self._raw_columns, *more)

    def _unmarked(self, records: DataFrame, headers: tuple[str, ...], *, times: bool = False) -> DataFrame:
        return self._raw(records.where(~self._is_marked), headers, times=times)

    # Columns are built once: each takes a dozen calls into the JVM, 0.1 s a batch in all. Every step of a DataFrame is
    # analysed anew, 10 ms each.

    @cached_property
    def _marks(self) -> tuple[Column, list[Column]]:
        """The condition by which records are barriers, and the columns that `barriers` reads of them."""
        ours = F.filter("headers", lambda header: header["key"] == BARRIER_HEADER)
        return self._is_marked, [
            *map(F.col, ("partition", "offset")),
            # The driver holds them all: of what is longer than any barrier, only the length is kept.
            F.when(F.length("value") <= MAX_BARRIER_BYTES, F.col("value")).alias("value"),
            F.length("value").alias("size"),
            ours[0]["value"].alias("header"),
            ((F.size(ours) > 1) | F.col("key").isNotNull()).alias("ambiguous"),
        ]

    @cached_property
    def _is_marked(self) -> Column:
        if not self._holds_barriers:
            return F.lit(False)
        return F.col("headers").isNotNull() & F.exists(
            "headers", lambda header: header["key"] == BARRIER_HEADER
        )

    @cached_property
    def _raw_columns(self) -> list[Column]:
        return [*map(F.col, RAW_SCHEMA.names[:-1]), F.coalesce(self._is_marked, F.lit(False)).alias("marked")]


def _order(barriers: Sequence[AlignedBarrier]) -> list[Column]:
    """Interval, partition, offset. A row's interval is the number of intervals that end before it in its partition."""
    place = [F.col("partition"), F.col("offset")]
    if len(barriers) == 1:
        return place
    ends = (",".join(map(str, column)) for column in zip(*(each.ends for each in barriers), strict=True))
    arrays = ",".join(f"array({numbers})" for numbers in ends)
    own = f"element_at(array({arrays}), partition + 1)"
    return [F.expr(f"size(filter({own}, upto -> upto <= offset))"), *place]
