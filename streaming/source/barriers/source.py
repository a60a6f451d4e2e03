"""The interface of barrier sources: barriers written by this service or by others, in the data or in a separate topic.

    start ──▶ begin ──▶ stream ──▶ aligned, again and again ──▶ wakeup ──▶ close
                                     └ take_duplicates, for each batch

A source serves one run of the service, in the driver. A run that is interrupted closes its source, and the next one
makes another, which begins at the journal's position: the journal is the only memory of how far barriers were handled.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from schemas.epoch import NO_EPOCH
from schemas.errors import BackfillError
from schemas.records import Barrier, RecordId
from schemas.topics import UpstreamTopics
from state.values.aligned import AlignedBarrier
from streaming.kafka.barriers import BarrierCut
from streaming.kafka.clients import KafkaSettings
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.kafka import UpstreamSource
from streaming.source.retention import Gaps

Newest = Sequence[tuple[Barrier | None, int]]
"""The newest barrier and the number of barriers that wait for the other partitions, by partition."""


class BarrierSource(Protocol):
    """The aligned barriers of one upstream. Inherit from it: methods that are not abstract are optional.

    What `begin` and `aligned` give together is one chain without a gap: each barrier's `prev` is the `curr` of the one
    before it, and the first one follows the position. Its `ends` are exclusive, one a partition of the data, and never
    fall; equal ones mean that nothing came between two barriers. Committed readers can read everything below them. A
    source whose barriers are in a separate topic gives them with `in_data` False.

    Where the topic is read from later offsets on (`BarrierSetup.begins`), the first barrier is the first one that has
    reached them in every partition: with its marker, if it is in the data, else with its end.

    A barrier and its ends are decided once: another source that begins at the same or an earlier position gives the
    same barriers with the same ends, after any crash. A plan in the journal relies on it.

    Unless they say otherwise, calls come from one thread at a time: first that of the service's start, from `stream` on
    that of Spark's stream.
    """

    @property
    def problem(self) -> BackfillError | None:
        """A transient problem that delays the writing of barriers, or None. Read by any thread."""
        return None

    def start(self) -> None:
        """Fence an earlier run's injector and begin to write barriers, in a source that writes them.

        Called once, when the state is this instance's and before its unfinished batch is recovered: a transaction that
        an earlier writer left open ends here, behind which committed readers would see nothing.

        Raises, for what is not transient: TopicError, such as BARRIERS_TAKEN; InputError; Fenced; EnvironmentProblem.
        """
        return

    @abstractmethod
    def begin(self, position: AlignedBarrier | None, first: Sequence[int]) -> list[AlignedBarrier]:
        """The barriers behind `position` (None: the topic's beginning) that are found quickly; there may be more.

        Called once, after `start` and the recovery. `first[p]` is the first offset of partition p that no batch has
        handled: the end of `position`, or behind it where a long interval is handled in parts.

        Raises: InputError(DATA_LOST) when the topics lack what comes behind it; as `aligned`.
        """

    @abstractmethod
    def stream(self) -> DataFrame:
        """Spark's stream whose micro-batches `aligned` is called with, not started; called once, after `begin`.

        For barriers in a separate topic it is that topic's, for they come also when no data does.
        """

    @abstractmethod
    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        """The next barriers, in order, each given once; maybe none.

        Called with each micro-batch of the `stream`, and again with the same one while `has_more`, or where it `waits`.
        It may wait for a barrier, until `wakeup`. A micro-batch that is repeated, or records that were seen by `begin`,
        change nothing.

        Raises: InputError with the code of what is wrong with the chain or with a record, at its location;
        EnvironmentProblem. The source is unusable then. A source with the offsets of its barriers need not read other
        records: lanes refuse a record of their batch that is marked like a barrier.
        """

    @property
    def has_more(self) -> bool:
        """True if `aligned` would give more without further records."""
        return False

    @property
    def waits(self) -> bool:
        """True if `aligned` waits for the next barrier by itself, without a micro-batch."""
        return False

    @property
    def untaken(self) -> int:
        """A lower bound on the committed barriers that `aligned` has not given yet."""
        return 0

    def take_duplicates(self, end: AlignedBarrier) -> Sequence[RecordId]:
        """Records of the data before `end` that belong to no interval: repeated markers. Each is given once."""
        return ()

    @abstractmethod
    def newest(self) -> Newest:
        """The newest barriers, from `begin` on, for status and metrics. Called by any thread."""

    def hasten(self, after: int) -> None:
        """Have a barrier behind the epoch `after` written now, for work that waits for nothing else.

        Called by any thread. One that is there already is enough: another one would only wait for its batch, and the
        changes behind it with it. A source whose barriers others write does nothing.
        """
        return

    def delete_barriers(self, cut: BarrierCut) -> int:
        """Delete barriers of a topic of this service's own, as far as the cut allows. Returns the number of records.

        Called by any thread, behind a finished batch. Raises: EnvironmentProblem, TopicError when it is refused.
        """
        return 0

    def check(self) -> None:
        """Raise the error that has ended the writing of barriers for good, if any. Called by any thread, often.

        Raises: Fenced when another instance writes them; any other error that ended the writer.
        """
        return

    def wakeup(self) -> None:
        """End the wait in `aligned`, which gives nothing from now on. Called by any thread; idempotent."""
        return

    def close(self) -> None:
        """Stop writing barriers and leave the broker, within seconds. Called by any thread, also after a failure.

        Idempotent. A barrier that is under way may or may not be committed: the next start finds out.
        """
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierSetup:
    """Arguments of a source, besides the settings of its kind.

    `left_out` are records, (partition, offset), that an operator named: none of them counts as a barrier. `owner` is
    the id of the state; `is_ours` is True while this instance may write it. `spark()` blocks until the session is
    there. `begins` are the first offsets of the data that are read, where they are not its first ones; `gaps` has the
    known gaps in the offsets behind the position. `read_limit`: records a second between the barriers that it writes.
    `least`: the partitions of the last barrier that was handled, where there was one.
    """

    kafka: KafkaSettings
    topics: UpstreamTopics
    partitions: int
    interval_ms: int
    spark: Callable[[], SparkSession]
    records: UpstreamSource
    left_out: frozenset[RecordId]
    owner: str
    is_ours: Callable[[], bool]
    begins: tuple[int, ...] = ()
    gaps: Gaps = field(default_factory=Gaps)
    read_limit: int | None = None
    least: int | None = None


class WithInjector(BarrierSource):
    """A mix-in for sources with an injector. Inherit from it before the source that finds barriers; set `_injector`."""

    _injector: BarrierInjector

    @property
    def problem(self) -> BackfillError | None:
        return self._injector.problem

    @property
    def untaken(self) -> int:
        # The newest barrier of the injector counts until it is read in every partition.
        last = self._injector.last_barrier
        read = [barrier.curr if barrier else NO_EPOCH for barrier, _ in self.newest()]
        return max(super().untaken, int(last is not None and any(epoch < last.curr for epoch in read)))

    def start(self) -> None:
        self._injector.start()

    def hasten(self, after: int) -> None:
        self._injector.hasten(after)

    def check(self) -> None:
        self._injector.check()

    def close(self) -> None:
        super().close()
        self._injector.stop()
