"""Barrier alignment: when has every partition delivered a barrier, and is the chain sound?

Each partition holds data with the same sequence of barriers embedded:

    partition 0   d d B1 d B2 d d d B3
    partition 1   B1 d d d d B2
    partition 2   d B1 B2 d B3              aligned: B1, B2.  B3 waits for partition 1.

The aligner is fed the barriers of each partition in offset order and gives them back once all partitions have
them, with the place of each copy. It is the only judge of the chain: `prev` of a barrier is the `curr` of the
one before it, in every partition. It forgets nothing it has not given back, and it ignores what it has seen, so
feeding an overlapping range again changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from schemas.error_table import expectation
from schemas.errors import Code, InputError
from schemas.records import Barrier
from state.values.plan import AlignedBarrier

_MOST_BETWEEN = 1
"""Offsets between a copy and its twin right before it: at most a transaction marker."""


class Aligner:
    """One upstream topic. `last` is the aligned barrier that everything before was handled up to (None: beginning)."""

    def __init__(self, topic: str, partitions: int, last: AlignedBarrier | None) -> None:
        self._topic, self._partitions = topic, partitions
        self._waiting: list[deque[tuple[int, Barrier]]] = [deque() for _ in range(partitions)]
        self._ends = [0] * partitions if last is None else list(last.ends)
        self._newest: list[Barrier | None] = [None if last is None else last.barrier] * partitions
        self._duplicates: list[tuple[int, int]] = []

    def feed(self, partition: int, offset: int, barrier: Barrier) -> None:
        """Take the next barrier of a partition; what is before the end of one that was fed is ignored.

        Raises: InputError with the code of what is wrong with the chain, at `topic-partition@offset`. The aligner
        is unusable afterwards.
        """
        if offset < self._ends[partition]:
            return
        newest = self._newest[partition]
        if newest is not None and barrier.curr == newest.curr and barrier.prev == newest.prev:
            self._repeated(partition, offset, barrier)
            return
        self._check(partition, offset, barrier, newest)
        self._ends[partition], self._newest[partition] = offset + 1, barrier
        self._waiting[partition].append((offset, barrier))

    def _repeated(self, partition: int, offset: int, barrier: Barrier) -> None:
        """A producer's retry may write the same barrier twice in a row; data between the two has no interval."""
        if offset - self._ends[partition] > _MOST_BETWEEN:
            raise self._error(
                Code.BARRIER_DUPLICATE_WITH_DATA,
                (partition, offset),
                f"barrier {barrier.curr} a second time, with records since the first",
            )
        self._duplicates.append((partition, offset))
        self._ends[partition] = offset + 1

    def leave_out(self, partition: int, offset: int) -> None:
        """Pass over a record that looks like a barrier but is none, as the operator says."""
        if offset >= self._ends[partition] and (partition, offset) not in self._duplicates:
            self._duplicates.append((partition, offset))

    def _check(self, partition: int, offset: int, barrier: Barrier, newest: Barrier | None) -> None:
        place = (partition, offset)
        if barrier.partitions != self._partitions:
            raise self._error(
                Code.PARTITIONS_CHANGED,
                place,
                f"barrier {barrier.curr} for {barrier.partitions} partitions",
                partitions=self._partitions,
                before="the topic has",
            )
        if newest is None:
            return
        if barrier.curr <= newest.curr:
            code = Code.BARRIER_REGRESSION if barrier.prev >= newest.prev else Code.BARRIER_LATE
            raise self._error(code, place, f"barrier {barrier.curr}", last=newest.curr)
        if barrier.prev != newest.curr:
            found = f"barrier {barrier.curr} with prev {barrier.prev}"
            raise self._error(Code.BARRIER_GAP, place, found, last=newest.curr)

    def newest(self) -> list[tuple[Barrier | None, int]]:
        """Of each partition, the newest barrier and how many of its barriers wait for the other partitions."""
        return [(newest, len(queue)) for newest, queue in zip(self._newest, self._waiting, strict=True)]

    def aligned(self) -> list[AlignedBarrier]:
        """Take out the barriers that all partitions have delivered, in order; each is given once.

        Raises: InputError(BARRIER_DISAGREE) when partitions hold different barriers at the same place of the chain.
        """
        result = []
        while all(self._waiting):
            heads = [queue.popleft() for queue in self._waiting]
            self._check_agreement(heads)
            result.append(AlignedBarrier(heads[0][1], tuple(offset + 1 for offset, _ in heads)))
        return result

    def _check_agreement(self, heads: Sequence[tuple[int, Barrier]]) -> None:
        first_offset, first = heads[0]
        for partition, (offset, barrier) in enumerate(heads):
            if _identity(barrier) != _identity(first):
                raise self._error(
                    Code.BARRIER_DISAGREE,
                    (partition, offset),
                    f"barrier {barrier.curr} (prev {barrier.prev})",
                    other=f"at {self._topic}-0@{first_offset}: {first.curr} (prev {first.prev}), "
                    "with the same kind and mutation",
                )

    def take_duplicates(self, end: AlignedBarrier) -> tuple[tuple[int, int], ...]:
        """Take out the places (partition, offset) of repeated barriers before `end`: no batch should read them.

        The others stay: they are in the range of a later batch.
        """
        taken = tuple(place for place in self._duplicates if place[1] < end.ends[place[0]])
        self._duplicates = [place for place in self._duplicates if place not in taken]
        return taken

    @property
    def waiting(self) -> tuple[int, ...]:
        """Barriers that each partition has delivered and others have not: who is behind shows 0."""
        return tuple(len(queue) for queue in self._waiting)

    def _error(self, code: Code, place: tuple[int, int], found: str, **values: object) -> InputError:
        return InputError(
            code,
            where=f"{self._topic}-{place[0]}@{place[1]}",
            found=found,
            next_step=f"see what writes barriers to this topic; if this one is not its own, leave it out: "
            f"--skip-record {place[0]}@{place[1]}",
            expected=expectation(code, **values),
        )


def _identity(barrier: Barrier) -> tuple[object, ...]:
    """What all partitions must say alike. In an upstream that is an output, progress is each partition's own."""
    return barrier.curr, barrier.prev, barrier.kind, barrier.mutation
