"""The door for barrier sources: barriers written by this service or by others, in the data or beside it.

    start ──▶ begin ──▶ stream ──▶ aligned, again and again ──▶ wakeup ──▶ close
                                     └ take_duplicates, for each batch

A source serves one run of the service, in the driver. A run that is interrupted closes its source, and the next one
makes another, which begins at the journal's position: the journal is the only memory of how far barriers were handled.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from schemas.errors import BackfillError
from schemas.records import Barrier, RecordId
from schemas.topics import UpstreamTopics
from state.values.plan import AlignedBarrier
from streaming.kafka.barriers import BarrierCut
from streaming.kafka.clients import KafkaSettings
from streaming.source.barriers.found import FoundBarrier, Look
from streaming.source.gaps import Gaps

Newest = Sequence[tuple[Barrier | None, int]]
"""Of each partition, the newest barrier and how many of its barriers wait for the other partitions."""


class BarrierSource(Protocol):
    """The aligned barriers of one upstream. Inherit from it: methods that are not abstract are optional.

    What `begin` and `aligned` give together is one chain without a gap: each barrier's `prev` is the `curr` of the one
    before it, and the first one follows the position. Its `ends` are exclusive, one a partition of the data, and never
    fall; equal ones mean that nothing came between two barriers. Committed readers can read everything below them. A
    source whose barriers stand beside the data gives them with `in_data` False.

    Where the topic is read from later offsets on (`BarrierSetup.begins`), the first barrier is the first one that has
    reached them in every partition: with its marker, if it stands in the data, else with its end.

    A barrier and its ends are decided once: another source that begins at the same or an earlier position gives the
    same barriers with the same ends, after any crash. A plan in the journal relies on it.

    Unless they say otherwise, calls come from one thread at a time: first that of the service's start, from `stream` on
    that of Spark's stream.
    """

    @property
    def hindrance(self) -> BackfillError | None:
        """A transient problem that keeps barriers from being written; None without. Read by any thread."""
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

        For barriers beside the data it is that of their topic, for they come also when no data does.
        """

    @abstractmethod
    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        """The next barriers, in order, each given once; maybe none.

        Called with each micro-batch of the `stream`, and again with the same one while `has_more`, or where it `waits`.
        It may wait for a barrier, until `wakeup`. A micro-batch that is repeated, or records that were seen by `begin`,
        change nothing.

        Raises: InputError with the code of what is wrong with the chain or with a record, at its place;
        EnvironmentProblem. The source is unusable then. A source that knows where its barriers are need not look at
        other records: what is marked like a barrier among the data of a batch, its lanes refuse.
        """

    @property
    def has_more(self) -> bool:
        """Whether `aligned` would give more without further records."""
        return False

    @property
    def waits(self) -> bool:
        """Whether `aligned` waits for the next barrier by itself, and needs no micro-batch to know of it."""
        return False

    @property
    def untaken(self) -> int:
        """Barriers that are known to be committed, at least so many, and that `aligned` has not given yet."""
        return 0

    def take_duplicates(self, end: AlignedBarrier) -> Sequence[RecordId]:
        """Records of the data before `end` that belong to no interval: repeated markers. Each is given once."""
        return ()

    @abstractmethod
    def newest(self) -> Newest:
        """The newest barriers, from `begin` on, for status and metrics. Called by any thread."""

    def hasten(self, after: int) -> None:
        """A barrier behind the epoch `after` would be of use now: there is work that waits for nothing else.

        Called by any thread. One that is there already is enough: another one would only wait for its batch, and the
        changes behind it with it. A source whose barriers others write does nothing.
        """
        return

    def delete_barriers(self, cut: BarrierCut) -> int:
        """Delete barriers of a topic of this service's own, as far as the cut allows; returns how much is gone.

        Called by any thread, behind a finished batch. Raises: EnvironmentProblem, TopicError when it is refused.
        """
        return 0

    def check(self) -> None:
        """Raise the error that has ended the writing of barriers for good, if any. Called by any thread, often.

        Raises: Fenced when another instance writes them; any other error that ended the writer.
        """
        return

    def wakeup(self) -> None:
        """Let `aligned` wait no longer and give nothing, now and later. Called by any thread; idempotent."""
        return

    def close(self) -> None:
        """Stop writing barriers and leave the broker, within seconds. Called by any thread, also after a failure.

        Idempotent. A barrier that is under way may or may not be committed: the next start finds out.
        """
        return


class Records(Protocol):
    """The upstream's records, as far as sources whose barriers stand in the data need them; see `UpstreamSource`."""

    def look(self, first: Sequence[int]) -> Look: ...  # noqa: D102

    def stream(self, first: Sequence[int]) -> DataFrame: ...  # noqa: D102

    def range(self, first: Sequence[int], end: Sequence[int]) -> DataFrame: ...  # noqa: D102

    def barriers(self, records: DataFrame) -> Iterator[FoundBarrier]: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierSetup:
    """What a source is made from, beside the settings of its kind.

    `left_out` are records, (partition, offset), that an operator named: no barrier is among them. `owner` is the id of
    the state, and `is_ours` asks whether this instance is still the one that may write it. `spark()` blocks until the
    session is there. `begins` are the first offsets that are read of the data, where they are not its first ones;
    `gaps` is what is known of the offsets behind the position.
    """

    kafka: KafkaSettings
    topics: UpstreamTopics
    partitions: int
    interval_ms: int
    spark: Callable[[], SparkSession]
    records: Records
    left_out: frozenset[RecordId]
    owner: str
    is_ours: Callable[[], bool]
    begins: tuple[int, ...] = ()
    gaps: Gaps = field(default_factory=Gaps)
