"""The time for which an upstream keeps unread records, and a warning before it becomes short.

Needed are the records that no batch has handled: those of the plan in the journal and all behind it. What is before
them is in the replica's tables and in the outputs, and may be deleted. Kafka deletes whole segments, by their newest
record, some minutes late; so margins are to the earliest moment, by the first record that is needed.

A topic that is compacted forgets deletes: the last record of a key that was deleted goes, once it was there for
`min.compaction.lag.ms` and then for `delete.retention.ms`. A later reader never learns that the row is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.topics import known_settings

_SMALL_SHARE = 0.25
"""The share of the time that the topic keeps. Of a week it is the time from Friday evening to Sunday noon."""
_EVERY_S = 30.0

log = structlog.get_logger(__name__)


class Marks(Protocol):
    """Offsets of a partition, as `Watermarks`."""

    @property
    def high(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Margin:
    """The time for which partition `partition` surely keeps its record `offset`, the first that is needed.

    Negative once it may be gone. Where all was read it is that of a record that comes now.
    """

    partition: int
    offset: int
    seconds: float


def kept_ms(settings: Mapping[str, str]) -> int | None:
    """The time, in milliseconds, that a topic with these settings surely keeps needed records; None: for ever.

    `retention.bytes` is ignored: when it deletes depends on the traffic.
    """
    policy = settings["cleanup.policy"]
    limits = []
    if "delete" in policy and int(settings["retention.ms"]) >= 0:
        limits.append(int(settings["retention.ms"]))
    if "compact" in policy:
        limits.append(int(settings["min.compaction.lag.ms"]) + int(settings["delete.retention.ms"]))
    return min(limits, default=None)


def margins(
    kafka: KafkaSettings,
    topic: str,
    marks: Sequence[Marks],
    next_offsets: Sequence[int],
    *,
    kept_ms: int,
    now_ms: float,
) -> tuple[Margin, ...]:
    """The margin of each partition that has `next_offsets`, of a topic that keeps its records for so long.

    Reads one record of each partition that has more. Raises: as `RangeReader.read`.
    """
    found = []
    # A record of an open transaction is there, too, and its time runs.
    over = {
        "isolation.level": "read_uncommitted",
        "queued.min.messages": 1,
        "fetch.message.max.bytes": 65_536,
    }
    with RangeReader(kafka, **over) as reader:
        for partition, (each, offset) in enumerate(zip(marks, next_offsets, strict=False)):
            first = next(reader.read(topic, {partition: (offset, each.high)}), None)
            written_ms = now_ms if first is None else first[0].timestamp()[1]
            found.append(Margin(partition, offset, (written_ms + kept_ms - now_ms) / 1_000))
    return tuple(found)


class Retention:
    """The margins of one upstream, read every `every_s` seconds at most. For one thread."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        *,
        every_s: float = _EVERY_S,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._kafka, self._topic, self._every_s, self._wall_s = kafka, topic, every_s, wall_s
        self._looked_s: float | None = None
        self._found: tuple[Margin, ...] = ()
        self._warned = False

    def look(self, marks: Sequence[Marks], next_offsets: Sequence[int]) -> tuple[Margin, ...]:
        """The margins, maybe those of the look before; none for a topic that keeps all or can't be described.

        Logs once when one has become small, and once when none is any more. Raises: InputError(DATA_LOST),
        EnvironmentProblem, TopicError(TOPIC_MISSING).
        """
        now_s = time.monotonic()
        if not next_offsets or (self._looked_s is not None and now_s - self._looked_s < self._every_s):
            return self._found
        settings = known_settings(self._kafka, self._topic)
        kept = None if settings is None else kept_ms(settings)
        self._found = ()
        if kept is not None:
            now_ms = self._wall_s() * 1_000
            self._found = margins(self._kafka, self._topic, marks, next_offsets, kept_ms=kept, now_ms=now_ms)
        self._looked_s = now_s
        self._warn((kept or 0) / 1_000)
        return self._found

    def _warn(self, kept_s: float) -> None:
        least = min(self._found, key=lambda each: each.seconds, default=None)
        small = least is not None and least.seconds < kept_s * _SMALL_SHARE
        if least is not None and small and not self._warned:
            log.warning(
                "retention_margin_small",
                where=f"{self._topic}-{least.partition}@{least.offset}",
                margin_s=round(least.seconds),
                kept_s=round(kept_s),
                next_step="let the service catch up, or raise retention.ms (compacted: delete.retention.ms) of it",
            )
        elif self._warned and not small:
            log.info("retention_margin_again", topic=self._topic, kept_s=round(kept_s))
        self._warned = small
