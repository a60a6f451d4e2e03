"""Barrier alignment: which barriers has every partition delivered, and is the chain sound?

Each partition holds data with the same sequence of barriers embedded:

    partition 0   d d B1 d B2 d d d B3
    partition 1   B1 d d d d B2
    partition 2   d B1 B2 d B3              aligned: B1, B2.  B3 waits for partition 1.

The aligner is fed the barriers of each partition in offset order and returns them once all partitions have them, with
the end of its interval in each. It alone checks the chain: `prev` of a barrier is the `curr` of the one before it, in
every partition. It keeps everything that it has not returned, and ignores offsets that it has seen, so feeding an
overlapping range again changes nothing.

A topic may gain partitions: `partitions` of the barriers rises then, and from that barrier on the new ones have all.
A barrier is aligned once as many partitions as it says have delivered it; others end where they begin.

Barriers in a separate topic (`feed_beside`) hold the ends of their intervals.

A topic that is read from later offsets on (`begins`) begins with the first barrier that has reached them in every
partition, by its marker in the data or by its end. Barriers before that one are no part of the chain.

A topic of barriers whose oldest ones were deleted (`mark_trimmed`) begins with the first one that every partition still
has: the intervals before it count as one, which goes on from the last that was handled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from schemas.error_table import expectation
from schemas.errors import Code, InputError
from schemas.records import Barrier, RecordId
from state.values.aligned import AlignedBarrier, padded

_MOST_BETWEEN = 1
"""Offsets between two copies of one barrier in a row: at most a transaction marker."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A barrier in one partition: its offset in the topic of barriers, and the exclusive end of its interval."""

    barrier: Barrier
    offset: int
    end: int


class Aligner:
    """One topic of barriers. `last` is the last aligned barrier that was handled (None: start at the beginning).

    `partitions` are those of the data, which may be more than barriers are for. `in_data`: that topic holds the data,
    too. `begins`: the first offset of each partition that is read, by default 0.
    """

    def __init__(
        self,
        topic: str,
        partitions: int,
        last: AlignedBarrier | None,
        *,
        in_data: bool = True,
        begins: Sequence[int] = (),
    ) -> None:
        self._topic, self._partitions, self._in_data = topic, partitions, in_data
        self._last, self._trimmed = last, frozenset[int]()
        self._begins = tuple(begins) if last is None else ()
        self._first = padded(begins, [0] * partitions)
        self._waiting: list[deque[_Copy]] = [deque() for _ in range(partitions)]
        self._ends = [0] * partitions if last is None else list(padded(last.ends, self._first))
        self._seen_to = list(self._ends) if in_data else [0] * partitions
        count = 0 if last is None else last.barrier.partitions
        self._newest = [last.barrier if last and number < count else None for number in range(partitions)]
        self._duplicates: list[RecordId] = []

    def mark_trimmed(self, partitions: Iterable[int]) -> None:
        """Name the partitions that no longer have the barrier behind the last one. Call it before the first `feed`."""
        self._trimmed = frozenset(partitions)

    def feed(self, partition: int, offset: int, barrier: Barrier) -> None:
        """Take the next barrier of a partition; one before the end of those that were fed is ignored.

        Raises: InputError with the code of the fault in the chain, at `topic-partition@offset`. The aligner is unusable
        afterwards.
        """
        self._feed(partition, _Copy(barrier, offset, offset + 1))

    def feed_beside(self, partition: int, offset: int, barrier: Barrier, end: int) -> None:
        """Take the next barrier of a separate topic, as `feed`; the first is the one behind the last that was handled.

        The progress in barriers of an output is not passed on.
        """
        self._feed(partition, _Copy(replace(barrier, progress=(), full=False, columns=()), offset, end))

    def _feed(self, partition: int, copy: _Copy) -> None:
        if copy.offset < self._seen_to[partition]:
            return
        newest = self._newest[partition]
        if newest is not None and copy.barrier.curr == newest.curr and copy.barrier.prev == newest.prev:
            self._repeated(partition, copy)
            return
        self._check(partition, copy, newest)
        self._seen_to[partition], self._ends[partition] = copy.offset + 1, copy.end
        self._newest[partition] = copy.barrier
        self._waiting[partition].append(copy)

    def _repeated(self, partition: int, copy: _Copy) -> None:
        """A producer's retry may write the same barrier twice in a row; data between the two has no interval."""
        moved = copy.end != self._ends[partition]
        if self._in_data:
            moved = copy.offset - self._ends[partition] > _MOST_BETWEEN
            self._duplicates.append((partition, copy.offset))
        if moved:
            raise self._error(
                Code.BARRIER_DUPLICATE_WITH_DATA,
                (partition, copy.offset),
                f"barrier {copy.barrier.curr} a second time, with records since the first",
            )
        self._seen_to[partition], self._ends[partition] = copy.offset + 1, copy.end

    def leave_out(self, partition: int, offset: int) -> None:
        """Skip a record that looks like a barrier, because the operator named it."""
        if offset >= self._seen_to[partition] and (partition, offset) not in self._duplicates:
            self._duplicates.append((partition, offset))

    def _check(self, partition: int, copy: _Copy, newest: Barrier | None) -> None:
        barrier, at = copy.barrier, (partition, copy.offset)
        least = partition + 1 if newest is None else newest.partitions
        if not least <= barrier.partitions <= self._partitions:
            is_less = barrier.partitions < least
            raise self._error(
                Code.PARTITIONS_CHANGED,
                at,
                f"barrier {barrier.curr} for {barrier.partitions} partitions",
                partitions=least if is_less else self._partitions,
                before="the barriers before it are for" if is_less else "the topic has",
            )
        if newest is None:
            return
        if barrier.curr <= newest.curr:
            code = Code.BARRIER_REGRESSION if barrier.prev >= newest.prev else Code.BARRIER_LATE
            raise self._error(code, at, f"barrier {barrier.curr}", last=newest.curr)
        is_oldest = partition in self._trimmed and not self._seen_to[partition]
        if barrier.prev != newest.curr and not is_oldest:
            found = f"barrier {barrier.curr} with prev {barrier.prev}"
            raise self._error(Code.BARRIER_GAP, at, found, last=newest.curr)
        if copy.end < self._ends[partition]:
            found = f"barrier {barrier.curr} with the end {copy.end}, which is below {self._ends[partition]}"
            raise self._error(Code.BARRIER_REGRESSION, at, found, last=newest.curr)

    def newest(self) -> list[tuple[Barrier | None, int]]:
        """The newest barrier of each partition, and the number of its barriers that wait for other partitions."""
        return [(newest, len(queue)) for newest, queue in zip(self._newest, self._waiting, strict=True)]

    def take_aligned(self) -> list[AlignedBarrier]:
        """Take out the barriers that all partitions have delivered, in order; each is returned once.

        Raises: InputError(BARRIER_DISAGREE) when partitions hold different barriers at the same point of the chain.
        """
        result = []
        while count := self._next_count():
            heads = [queue.popleft() for queue in self._waiting[:count]]
            self._check_agreement(heads)
            self._trimmed = frozenset()
            ends = padded([copy.end for copy in heads], self._first)
            if any(end < begin for end, begin in zip(ends, self._begins, strict=False)):
                continue  # in a separate topic; barriers in the data before the beginning are never fed
            self._begins = ()
            result.append(AlignedBarrier(self._in_chain(heads[0].barrier), ends, self._in_data))
        return result

    def _in_chain(self, barrier: Barrier) -> Barrier:
        """The barrier behind the last one; it closes all intervals between the two, where some were deleted."""
        last, self._last = self._last, None
        return barrier if last is None else replace(barrier, prev=last.epoch)

    def _next_count(self) -> int:
        """The number of partitions of the next barrier, if all of them have a next one; else 0.

        First drops barriers that another partition has only before its first offset to read, or no longer: they never
        become aligned.
        """
        while self._waiting[0]:
            count = self._waiting[0][0].barrier.partitions
            if not all(self._waiting[:count]):
                return 0
            heads = [queue[0].barrier for queue in self._waiting[:count]]
            newest, least = max(each.curr for each in heads), min(each.partitions for each in heads)
            behind = [number for number, each in enumerate(heads) if each.curr < newest]
            begin_later = self._begin_later()
            ahead = set(range(least)) - set(behind)
            if not behind or not begin_later or not ahead <= begin_later:
                return count
            dropped = [(number, self._waiting[number].popleft().offset) for number in behind]
            self._duplicates += dropped if self._in_data else []
        return 0

    def _begin_later(self) -> frozenset[int]:
        """The partitions that may begin with a later barrier than others, besides those that were added."""
        if not self._in_data:
            return self._trimmed
        return frozenset(number for number, begin in enumerate(self._begins) if begin)

    def _check_agreement(self, heads: Sequence[_Copy]) -> None:
        first = heads[0].barrier
        for partition, copy in enumerate(heads):
            if _identity(copy.barrier) != _identity(first):
                raise self._error(
                    Code.BARRIER_DISAGREE,
                    (partition, copy.offset),
                    f"barrier {copy.barrier.curr} (prev {copy.barrier.prev})",
                    other=f"at {self._topic}-0@{heads[0].offset}: {first.curr} (prev {first.prev}), "
                    "with the same kind, mutation and partitions",
                )

    def take_duplicates(self, end: AlignedBarrier) -> tuple[RecordId, ...]:
        """Remove and return (partition, offset) of repeated barriers before `end`: no batch may read them.

        Those behind `end` stay, for the batch whose range they are in.
        """
        taken = tuple(at for at in self._duplicates if at[1] < end.ends[at[0]])
        self._duplicates = [at for at in self._duplicates if at not in taken]
        return taken

    def _error(self, code: Code, at: RecordId, found: str, **values: object) -> InputError:
        leave_out = f"; if this one is not its own, leave it out: --skip-record {at[0]}@{at[1]}"
        return InputError(
            code,
            where=f"{self._topic}-{at[0]}@{at[1]}",
            found=found,
            next_step=f"see what writes barriers to this topic{leave_out if self._in_data else ''}",
            expected=expectation(code, **values),
        )


def _identity(barrier: Barrier) -> tuple[object, ...]:
    """The fields that must be equal in all partitions. In an upstream that is an output, each has its own progress."""
    return barrier.curr, barrier.prev, barrier.kind, barrier.mutation, barrier.partitions
