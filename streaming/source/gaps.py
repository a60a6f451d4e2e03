"""Are the records still there that were not read yet? And if offsets are gone: was a record among them?

A position mostly lies right behind a record, and behind that may come what no reader is given: the end of its
transaction, an aborted one. When retention empties a topic that is idle, the log begins behind that, and so behind the
position. So while the topic is idle a service looks once whether there is a record behind its position, and keeps the
answer (`state.small_files`): afterwards it can't be found in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from schemas.errors import Code, InputError
from schemas.records import RecordId
from state.small_files import EmptyRange, EmptyRanges
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.kafka.topics import Watermarks, watermarks

_MOST_NAMED = 8
"""Offsets that are gone and that an error names one by one, to be passed over."""
_FEW = {"queued.min.messages": 1, "fetch.message.max.bytes": 65_536}


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


def refuse_lost(kafka: KafkaSettings, topic: str, next_offsets: Sequence[int], gaps: Gaps) -> None:
    """Checks as `Gaps.refuse_lost`, by the topic's current watermarks."""
    gaps.refuse_lost(topic, watermarks(kafka, topic), next_offsets)


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
