"""The upstream topic as Spark sees it: a stream that is searched for barriers, and ranges between two barriers.

Where barriers stand in the data, the stream's own rows are only looked through for them, which costs no decoding. A
batch reads exactly the range from its first to its last barrier, so no row behind the last aligned barrier is ever
decoded, carried over or held; what the stream delivered too early is simply read when its barrier has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.avro.codec import MAX_BARRIER_BYTES
from schemas.formats.protocol import Format, Images
from schemas.formats.registry import DEFAULT
from schemas.records import BARRIER_HEADER, RecordId
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, TRANSACTION, VNODE
from state.values.plan import AlignedBarrier
from state.vnode import vnode_expression
from streaming.kafka.clients import KafkaSettings
from streaming.runtime.session import collect
from streaming.runtime.spark_jobs import sorted_rows
from streaming.source.barriers.found import FoundBarrier, Look, Marked, found_barrier, look_ahead
from streaming.source.decoded import AFTER, AWAITS, BEFORE, KEY, MARKED, POSITION, SIZE, UNCHANGED, VALUE
from streaming.source.formats.registry import decoder_of
from streaming.source.gaps import Gaps
from streaming.source.lane_keys import lane_keys
from streaming.source.spark_topic import SparkTopic

_RECORD = ("partition", "offset", "key", "value")
_LANE = "_bf_lane"


class UpstreamSource:
    """One topic of one table.

    `left_out` are records, (partition, offset), that an operator named: a barrier among them is none. A topic that
    holds no barriers is not looked through for marks of them; headers are its owner's. `begins` are the first offsets
    that are read, where they are not its first ones; `gaps` is what is known of the offsets behind the position.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        kafka: KafkaSettings,
        topic: str,
        table: TableSchema,
        left_out: frozenset[RecordId] = frozenset(),
        format_: Format = DEFAULT,
        *,
        holds_barriers: bool = True,
        begins: Sequence[int] = (),
        gaps: Gaps | None = None,
    ) -> None:
        self.begins, self.gaps = tuple(begins), Gaps() if gaps is None else gaps
        self._spark, self._kafka, self._topic, self._table = spark, kafka, topic, table
        self._holds_barriers = holds_barriers
        self._records = SparkTopic(spark, kafka, topic, headers=holds_barriers, gaps=self.gaps)
        self._left_out = left_out
        self._format, self._decoder = format_, decoder_of(format_, table)
        self._has_before = format_.images is Images.FULL
        self._lane_keys: dict[tuple[int, int, bool], Column] = {}

    @property
    def spark(self) -> SparkSession:
        """The session that it reads with; waits for it."""
        return self._spark()

    def stream(self, first: Sequence[int]) -> DataFrame:
        """The topic from first[p] of every partition p on."""
        return self._records.stream(first)

    def range(self, first: Sequence[int], end: Sequence[int]) -> DataFrame:
        """The records of [first[p], end[p]) of every partition p, without those before `begins`."""
        return self._records.range(tuple(map(max, first, self.begins)) if self.begins else first, end)

    def look(self, first: Sequence[int]) -> Look:
        """As `look_ahead`: without Spark."""
        return look_ahead(self._kafka, self._topic, first, self._left_out, self.gaps)

    def barriers(self, records: DataFrame) -> Iterator[FoundBarrier]:
        """The barriers among some records, in offset order within each partition.

        Raises: InputError at the first that is none, as `found_barrier`; EnvironmentProblem(SPARK_FAILED).
        """
        marked, marks = self._marks
        found = collect(records.where(marked).select(*marks))
        for row in sorted(found, key=lambda row: (row["partition"], row["offset"])):
            header, value = (None if row[name] is None else bytes(row[name]) for name in ("header", "value"))
            place = row["partition"], row["offset"]
            record = Marked(place, value, row["size"] or 0, header, row["ambiguous"])
            yield found_barrier(self._topic, record, self._left_out)

    def lane_rows(
        self,
        records: DataFrame,
        lanes: int,
        *,
        in_order_of: Sequence[AlignedBarrier] = (),
        by_partition: int = 0,
        history: Sequence[DataFrame] = (),
    ) -> DataFrame:
        """Records decoded and brought to their lanes: Spark partition i holds lane i, also when it is empty.

        `in_order_of` are the barriers of a batch whose changes are to come by interval, partition and offset. Spark
        sorts them, on disk where they are many. Without it they come in any order.

        A record that does not decode has a null op, and goes to lane 0. Its value comes along for a second look, as
        does one that Spark would have written in other bytes (`streaming.lane.faults`). What is marked as a barrier
        has the op `MARKED`. A record that names a schema which is not known has the op `AWAITS`, and goes to every
        lane: whose it is, is not known either, and a lane that has sent its part would never look at it.

        With `by_partition`, the number of the upstream's partitions, a record also comes to the lane that its partition
        belongs to, to each lane once; those of `history`, without what is marked as a barrier, to that lane alone. So
        do all records of a table without a key, which has no other lanes.
        """
        key = self._key_of(lanes, by_partition)
        if self._format.framed or by_partition:
            rows = self._rows(records).select("*", key)
            for early in history:
                early_key = self._key_of(lanes, by_partition, is_history=True)
                rows = rows.unionAll(self._rows(early.where(~self._is_marked)).select("*", early_key))
            rows = rows.repartition(lanes, _LANE).drop(_LANE)
        else:
            rows = self._rows(records).repartition(lanes, key)
        return sorted_rows(rows, _order(in_order_of)) if in_order_of else rows

    def rows_in_place(
        self,
        first: Sequence[int],
        end: Sequence[int],
        lanes: int,
        *,
        in_order_of: Sequence[AlignedBarrier] = (),
        history: Sequence[Sequence[tuple[int, int]]] = (),
    ) -> tuple[DataFrame, list[int]]:
        """As `lane_rows`, of a table whose vnodes are the partitions: each lane reads its own, and nothing is moved.

        `history` are ranges, one a partition. Gives the lane of each of Spark's partitions, too. Of which lane a
        record is, is known whatever it holds, so one that can't be read comes to no other.
        """
        count = len(first)
        if lanes == count and not history:
            records, places = self._records.range_in_place(first, end)
        else:
            of_lanes = (self._share(first, end, share, history) for share in _shares(count, lanes))
            records, places = reduce(DataFrame.unionAll, of_lanes), list(range(lanes))
        rows = self._rows(records)
        return (sorted_rows(rows, _order(in_order_of)) if in_order_of else rows), places

    def raw_in_place(self, first: Sequence[int], end: Sequence[int], lanes: int) -> DataFrame:
        """Records as they are: partition, offset, key, value, and whether each is marked as a barrier, never null.

        Spark partition i holds lane i, which has a share of the upstream's partitions; there are no fewer of these.
        """
        # These wait for the session, which may be on its way; without one Spark has no columns.
        ranges = [self._records.range(first, end, share) for share in _shares(len(first), lanes)]
        wanted = [*map(F.col, _RECORD), F.coalesce(self._is_marked, F.lit(False)).alias("marked")]
        return reduce(DataFrame.unionAll, (records.select(*wanted).coalesce(1) for records in ranges))

    def _share(
        self,
        first: Sequence[int],
        end: Sequence[int],
        share: Sequence[int],
        history: Sequence[Sequence[tuple[int, int]]],
    ) -> DataFrame:
        """The records of some partitions, in one partition of Spark's, also when there are none."""
        records = self._records.range(first, end, share)
        for layer in history:
            begins, ends = zip(*layer, strict=True)
            early = self._records.range(begins, ends, share)
            records = records.unionAll(early.where(~self._is_marked))
        return records.coalesce(1)

    def _rows(self, records: DataFrame) -> DataFrame:
        """Records decoded: `streaming.source.decoded`."""
        rows = records.select(*self._decoded)
        if self._checked:
            rows = rows.select(*self._checked)
        return rows.select(*self._named)

    def read_as(self, format_: Format) -> None:
        """Decode by this value of the same format from now on: schemas that it knows may have come to it."""
        if format_ != self._format:
            self._format, self._decoder = format_, decoder_of(format_, self._table)
            for name in ("_decoded", "_checked", "_named"):
                self.__dict__.pop(name, None)

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
    def _decoded(self) -> list[Column]:
        read = self._decoder.read(F.col("key"), F.col("value"))
        return [*map(F.col, _RECORD), self._is_marked.alias("marked"), read.alias("read")]

    @cached_property
    def _checked(self) -> list[Column]:
        """The decoder's second step, if it has one."""
        checked = self._decoder.checked(F.col("read"), F.col("key"), F.col("value"))
        return [] if checked is None else [*map(F.col, (*_RECORD, "marked")), checked.alias("read")]

    @cached_property
    def _named(self) -> list[Column]:
        """The columns of `streaming.source.decoded`, in a step of their own: `read` is evaluated once."""
        found = self._decoder.decoded(F.col("read"), F.col("key"), F.col("value"))
        row = F.coalesce(found.after, found.before)
        before_hash = F.xxhash64(*(found.before.getField(name) for name in self._table.column_names))
        hashed = found.before.isNotNull() & F.lit(self._has_before)
        return [
            F.col("partition").alias(PARTITION),
            F.col("offset").alias(OFFSET),
            F.col("key").alias(KEY),
            found.value.alias(VALUE),
            F.expr("coalesce(length(key), 0) + coalesce(length(value), 0)").alias(SIZE),
            F.when(F.col("marked"), F.lit(MARKED)).otherwise(found.op).cast("tinyint").alias(OP),
            F.when(row.isNotNull(), self._vnode_of(row)).alias(VNODE),
            found.before.alias(BEFORE),
            found.after.alias(AFTER),
            F.when(hashed, before_hash).alias(BEFORE_HASH),
            *(
                []
                if found.unchanged is None
                else [F.coalesce(found.unchanged, F.array().cast("array<int>")).alias(UNCHANGED)]
            ),
            *([] if found.position is None else [found.position.alias(POSITION)]),
            *([] if found.transaction is None else [found.transaction.alias(TRANSACTION)]),
        ]

    def _vnode_of(self, row: Column) -> Column:
        """The vnode of a row; rows without identity go by their partition, too."""
        is_hashed = self._table.has_key and not self._table.by_partition
        return vnode_expression(self._table, row) if is_hashed else F.col("partition")

    def _key_of(self, lanes: int, by_partition: int, *, is_history: bool = False) -> Column:
        which = lanes, by_partition, is_history
        if which not in self._lane_keys:
            self._lane_keys[which] = self._lane_key(*which).alias(_LANE)
        return self._lane_keys[which]

    def _lane_key(self, lanes: int, by_partition: int, is_history: bool) -> Column:
        vnodes = self._table.vnode_count if self._table.has_key else max(by_partition, 1)
        lane = F.coalesce(F.floor(F.col(VNODE) * lanes / vnodes).cast("int"), F.lit(0))
        every = F.array(*map(F.lit, lane_keys(lanes)))
        own, placed = F.element_at(every, lane + 1), F.array(F.element_at(every, lane + 1))
        if not self._format.framed and not by_partition:
            return own
        if by_partition:
            theirs = F.element_at(every, F.floor(F.col(PARTITION) * lanes / by_partition).cast("int") + 1)
            both = F.array(theirs) if is_history else F.array_distinct(F.array(own, theirs))
            # What has no vnode is at fault or a barrier: one lane looks at it.
            placed = F.when(F.col(VNODE).isNull(), placed).otherwise(both)
        return F.explode(F.when(F.col(OP) == AWAITS, every).otherwise(placed))


def _shares(count: int, lanes: int) -> list[range]:
    """The partitions of each lane: contiguous, as vnodes."""
    return [range(lane * count // lanes, (lane + 1) * count // lanes) for lane in range(lanes)]


def _order(barriers: Sequence[AlignedBarrier]) -> list[Column]:
    """Interval, partition, offset. A row's interval is the number of intervals that end before it in its partition."""
    place = [F.col(PARTITION), F.col(OFFSET)]
    if len(barriers) == 1:
        return place
    ends = (",".join(map(str, column)) for column in zip(*(each.ends for each in barriers), strict=True))
    arrays = ",".join(f"array({numbers})" for numbers in ends)
    own = f"element_at(array({arrays}), {PARTITION} + 1)"
    return [F.expr(f"size(filter({own}, upto -> upto <= {OFFSET}))"), *place]
