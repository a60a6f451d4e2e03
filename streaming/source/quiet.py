"""Detection of intervals that hold only their barriers: their lanes get no records, and need no Spark.

A Spark job that finds nothing takes as long as one that finds a few changes, and an idle table would pay for one with
every barrier. A few offsets are read in a few milliseconds instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Message

from schemas.errors import BackfillError
from schemas.records import BARRIER_HEADER, RecordId
from state.values.plan import BatchPlan
from streaming.core.planning import markers_of
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.source.direct_read import ranges_of

_MOST_OFFSETS = 4
"""The maximum mean number of offsets in a partition: a barrier, the marker of its transaction, and the same once more.
With more there are records among them, most likely, and looking is in vain."""


class QuietIntervals:
    """Checks of one upstream topic. `begins` are the first offsets that are read, where they are not its first ones.

    For one thread. It keeps a consumer open for its whole life.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, begins: Sequence[int] = ()) -> None:
        self._kafka, self._topic, self._begins = kafka, topic, tuple(begins)
        self._reader: RangeReader | None = None

    def is_quiet(self, plan: BatchPlan) -> bool:
        """True if the batch's own records are only its barriers' markers and records that the plan skips.

        False wherever that is not certain, a broker that does not answer and lost records included: what reads the
        records for the lanes says what is wrong.
        """
        ranges, markers = ranges_of(plan, self._begins), markers_of(plan)
        if sum(end - start for start, end in ranges.values()) > _MOST_OFFSETS * len(plan.first_offsets):
            return False
        try:
            return all(_is_nothing(message, plan, markers) for message in self._read(ranges))
        except BackfillError:
            self._close()
            return False

    def _read(self, ranges: dict[int, tuple[int, int]]) -> list[Message]:
        if not ranges:
            return []
        if self._reader is None:
            self._reader = RangeReader(self._kafka, **{"fetch.wait.max.ms": 5})
        return [message for chunk in self._reader.read(self._topic, ranges) for message in chunk]

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _is_nothing(message: Message, plan: BatchPlan, markers: frozenset[RecordId]) -> bool:
    """True if a lane ignores it: skipped by the plan, or the marker of a barrier of it (`streaming.lane.changes`)."""
    place = located(message)
    if place in plan.skipped:
        return True
    is_marker = header_of(message, BARRIER_HEADER) is not None and message.key() is None
    return is_marker and place in markers
