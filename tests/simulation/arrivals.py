"""Arrivals of a history's upstream, and the barriers among it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

from pyspark.sql import DataFrame

from state.values.aligned import AlignedBarrier
from streaming.kafka.barriers import FoundBarrier
from streaming.source.barriers.in_data import EmbeddedBarriers
from streaming.source.kafka import UpstreamSource

if TYPE_CHECKING:
    from tests.simulation.changelog import Changelog

Wait = Callable[[Callable[[], bool]], None]
Found = TypeVar("Found")


@dataclass
class Arrivals:
    """The barriers of each partition that can be seen, with all records before them.

    The closing ones stay back until everything else is done; then they come one by one, each after all the work that
    the one before gave. `most` says how many may come so far.

    `moment` is how far the database is by then, from which the changes come: it may be ahead of what arrives.
    `deletes`: old barriers of outputs are deleted; `deleted` counts those of the upstream that are.
    """

    changelog: Changelog
    most: int
    counts: list[int] = field(default_factory=list)
    moment: int = 0
    deleted: list[int] = field(default_factory=list)
    deletes: bool = False
    deletes_upstream: bool = False

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * self.changelog.count
        self.deleted = self.deleted or [0] * self.changelog.count

    def copy(self) -> Arrivals:
        """A second one in the same state."""
        return replace(self, counts=list(self.counts), deleted=list(self.deleted))

    def arrive(self, number: int) -> None:
        """The next barrier of a partition."""
        self.counts[number] += 1
        if self.changelog.timeline is not None:
            self.moment = max(self.moment, self.changelog.timeline.barriers[self.counts[number] - 1])

    @property
    def latest_moment(self) -> int:
        """The moment up to which the database may be ahead: at which the barrier after the next one is written."""
        timeline = self.changelog.timeline
        if timeline is None:
            return 0
        return timeline.barriers[min(max(self.counts) + 1, len(timeline.barriers) - 1)]

    def waiting(self) -> list[int]:
        """Partitions that have more to bring."""
        return [number for number, seen in enumerate(self.counts) if seen < self.most]

    def newest(self) -> int:
        """The last barrier that has come in the first partition; 0 without any."""
        count = self.counts[0]
        barrier = self.changelog.barriers[0][count - 1].barrier if count else None
        return barrier.curr if barrier else 0

    @property
    def is_over(self) -> bool:
        """True if nothing is left behind the records that may come so far."""
        return self.most == len(self.changelog.barriers[0])

    def since(self, taken: Sequence[int]) -> list[FoundBarrier]:
        """The barriers behind the first `taken` of each partition."""
        return [
            found
            for number, (old, new) in enumerate(zip(taken, self.counts, strict=True))
            for found in self.between(self.changelog.barriers, number, old, new)
        ]

    def between(
        self, barriers: Sequence[Sequence[Found]], number: int, old: int, new: int
    ) -> Sequence[Found]:
        """The items of a partition between two counts, which include the ones before its first."""
        late = self.changelog.late[number]
        return barriers[number][max(old - late, 0) : max(new - late, 0)]

    @property
    def partitions(self) -> int:
        """The partitions that the topic has by now: some are added before the barrier that tells of them comes."""
        return sum(late <= max(self.counts) for late in self.changelog.late)


class ArrivedSource(EmbeddedBarriers):
    """Markers in the data, as they arrive."""

    def __init__(self, arrivals: Arrivals, wait: Wait, partitions: int) -> None:
        super().__init__("up", partitions, _Markers(), begins=arrivals.changelog.begins[:partitions])
        self._arrivals, self._wait = arrivals, wait
        self._taken: list[int] | None = None

    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        if self._taken is None:
            self._taken = [0] * self._arrivals.changelog.count
        else:
            self._wait(lambda: self._arrivals.counts != self._taken)
        found = [each for each in self._arrivals.since(self._taken) if each.partition < self._partitions]
        self._taken = list(self._arrivals.counts)
        return super().aligned(cast("DataFrame", found))


class _Markers(UpstreamSource):
    """Barriers that have arrived, without their records."""

    def __init__(self) -> None:
        """Nothing of Spark's."""

    def find_barriers(self, first: Sequence[int]) -> tuple[list[FoundBarrier], tuple[int, ...]]:
        return [], tuple(first)

    def barriers_in(self, records: DataFrame) -> Iterator[FoundBarrier]:
        yield from cast("list[FoundBarrier]", records)
