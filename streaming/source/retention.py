"""Are the records still there that were not read yet, and for how long? If offsets are gone: was a record among them?

A position mostly lies right behind a record, and behind that may come what no reader is given: the end of its
transaction, an aborted one. When retention empties a topic that is idle, the log begins behind that, and so behind the
position. So while the topic is idle a service looks once whether there is a record behind its position, and keeps the
answer (`state.small_files`): afterwards it can't be found in the log.

Needed are the records that no batch has handled: those of the plan in the journal and all behind it. What is before
them is in the replica's tables and in the outputs, and may be deleted. Kafka deletes whole segments, by their newest
record, some minutes late; so margins are to the earliest moment, by the first record that is needed.

A topic that is compacted forgets deletes: the last record of a key that was deleted goes, once it was there for
`min.compaction.lag.ms` and then for `delete.retention.ms`. A later reader never learns that the row is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from schemas.errors import Code, InputError
from schemas.records import RecordId
from state.small_files import EmptyRange, EmptyRanges
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.kafka.topics import Watermarks, known_settings

_MOST_NAMED = 8
"""Offsets that are gone and that an error names one by one, to be passed over."""
_FEW = {"queued.min.messages": 1, "fetch.message.max.bytes": 65_536}
_SMALL_SHARE = 0.25
"""The share of the time that the topic keeps. Of a week it is the time from Friday evening to Sunday noon."""
_EVERY_S = 30.0

log = structlog.get_logger(__name__)


class Gaps:
    """The known offsets without records of one upstream, from the positions of one state on.

    `named` are offsets, (partition, offset), that an operator declares to hold nothing of value. May be read by any
    thread; `observe` may be called by one thread at a time.
    """

    def __init__(self, kept: EmptyRanges | None = None, named: frozenset[RecordId] = frozenset()) -> None:
        self._kept, self._named = kept, named
        self._known = {} if kept is None else kept.read()
        self._looked: Sequence[int] = ()

    def behind(self, partition: int, offset: int) -> int:
        """The offset itself, or the end of an empty range that begins with it."""
        known = self._known.get(partition)
        return known.end if known is not None and known.first == offset else offset

    def first(self, offsets: Sequence[int]) -> tuple[int, ...]:
        """`behind` of each partition's offset: reading may begin there without missing a record."""
        return tuple(self.behind(partition, offset) for partition, offset in enumerate(offsets))

    def observe(
        self, kafka: KafkaSettings, topic: str, marks: Sequence[Watermarks], next_offsets: Sequence[int]
    ) -> None:
        """Look for a record behind positions that have not moved since the last call, once for each position.

        What is deleted meanwhile is found by the next `refuse_lost`. Raises: EnvironmentProblem.
        """
        idle = {
            number: (offset, each.stable)
            for number, (each, offset) in enumerate(zip(marks, next_offsets, strict=False))
            if self._looked[number : number + 1] == (offset,) and self._is_unknown(number, offset, each)
        }
        self._looked = tuple(next_offsets)
        if not idle:
            return
        with suppress(InputError), RangeReader(kafka, **_FEW) as reader:
            for number, (first, end) in idle.items():
                found = next(reader.read(topic, {number: (first, end)}), None)
                stop = end if found is None else located(found[0])[1]
                self._known[number] = EmptyRange(first, stop, is_full=found is not None)
        if self._kept is not None:
            with suppress(OSError):
                self._kept.write(dict(self._known))  # `refuse_lost` of another thread may add to it meanwhile

    def _is_unknown(self, partition: int, offset: int, marks: Watermarks) -> bool:
        known = self._known.get(partition)
        if known is None or known.first != offset:
            return marks.earliest <= offset < marks.stable
        return not known.is_full and marks.earliest <= known.end < marks.stable

    def refuse_lost(self, topic: str, found: Sequence[Watermarks], next_offsets: Sequence[int]) -> None:
        """Raises: InputError(DATA_LOST) when a partition no longer holds what was not read yet, at either end.

        Also when that can't be known; the error says so.
        """
        for partition, (marks, wanted) in enumerate(zip(found, next_offsets, strict=False)):
            if wanted > marks.high:
                raise _lost(topic, partition, wanted, f"records {marks.high} to {wanted - 1}")
            first, gone = self.behind(partition, wanted), marks.earliest
            if first >= gone:
                continue
            if all((partition, offset) in self._named for offset in range(first, gone)):
                self._known[partition] = EmptyRange(wanted, gone)
                continue
            known = self._known.get(partition)
            if wanted == 0 or (known is not None and known.first == wanted and known.is_full):
                raise _lost(topic, partition, wanted, f"records {first} to {gone - 1}")
            raise _maybe_lost(topic, partition, wanted, range(first, gone))


def _lost(topic: str, partition: int, wanted: int, gone: str) -> InputError:
    return InputError(
        Code.DATA_LOST,
        where=f"{topic}-{partition}@{wanted}",
        found=f"a partition without its {gone}",
        start=wanted,
    )


def _maybe_lost(topic: str, partition: int, wanted: int, gone: range) -> InputError:
    """The error for records that may or may not have existed: ends of transactions have offsets, too."""
    named = " ".join(f"--skip-record {partition}@{offset}" for offset in gone[:_MOST_NAMED])
    return InputError(
        Code.DATA_LOST,
        where=f"{topic}-{partition}@{wanted}",
        found=f"a partition without its offsets {gone[0]} to {gone[-1]}; whether a record was among them, or ends of "
        "transactions alone, can't be known any more",
        start=wanted,
        next_step=f"if the topic's owner knows that there was no record, go on with {named}; else raise the topic's "
        "retention, and begin anew with a whole topic"
        if len(gone) <= _MOST_NAMED
        else None,
    )


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
    marks: Sequence[Watermarks],
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
    with RangeReader(kafka, **_FEW, **{"isolation.level": "read_uncommitted"}) as reader:
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

    def look(self, marks: Sequence[Watermarks], next_offsets: Sequence[int]) -> tuple[Margin, ...]:
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
