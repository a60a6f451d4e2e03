"""Ranges of upstream offsets that a batch reads apart from its intervals: history, and parts of a long interval.

*History*: records from before a batch, for jobs that read the upstream topic (`ScanConfig.reads_upstream`). Such a job
sends the records of a partition in their order, up to its position; a slice is a range of offsets before the batch's
live changes. So these ranges come to the lanes as records of the batch's first interval.

*Parts*: while no job is open, no output shows what lies between two barriers, so an interval may be brought into the
log part by part, each remembered in the journal. All partitions advance by the same share of what is left of them, so
the parts end together, and no part waits for one long partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from state.values.plan import BatchPlan, JobPlan

BEGINNING = -2
"""The first offset that a partition holds, in Kafka's notation. It is below every offset."""

Range = tuple[int, int]
"""From an offset, or `BEGINNING`, up to an offset: exclusive."""


def readers(plan: BatchPlan) -> list[JobPlan]:
    """The jobs of a batch that read the upstream's records."""
    return [job for job in plan.sent_jobs if job.state.definition.scan.reads_upstream]


def history_ranges(plan: BatchPlan) -> list[tuple[Range, ...]]:
    """The records of all slices of these jobs, each once: lists of one range a partition, which may be empty."""
    upstream = range(len(plan.first_offsets))
    of_partitions = [list(_ranges(plan, partition)) for partition in upstream]
    nothing = [(first, first) for first in plan.first_offsets]
    layers = zip_longest(*of_partitions)
    return [tuple(found or none for found, none in zip(layer, nothing, strict=True)) for layer in layers]


def history_records(plan: BatchPlan) -> int:
    """An upper bound of the records in these ranges."""
    return sum(end - max(first, 0) for layer in history_ranges(plan) for first, end in layer)


def _ranges(plan: BatchPlan, partition: int) -> Iterator[Range]:
    """The ranges of one partition, overlapping ones joined."""
    found: list[Range] = []
    for first, end in sorted(_slices(plan, partition)):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    yield from found


def _slices(plan: BatchPlan, partition: int) -> Iterator[Range]:
    for job in readers(plan):
        for item in job.slices:
            if item.part == partition:
                first = BEGINNING if item.after is None else int(item.after[0])
                end = plan.first_offsets[partition] if item.upto is None else int(item.upto[0])
                if max(first, 0) < end:
                    yield first, end


def part_ends(first: Sequence[int], end: Sequence[int], most_records: int) -> Iterator[tuple[int, ...]]:
    """Exclusive end offsets of each part of [first[p], end[p]) but the last, which ends with the interval.

    A part has at most `most_records` offsets and one more for each partition; one at least.
    """
    here = tuple(first)
    stops = tuple(max(offset, stop - 1) for offset, stop in zip(first, end, strict=True))
    while (left := sum(stops) - sum(here)) > most_records:
        here = tuple(
            offset + -(-(stop - offset) * most_records // left)
            for offset, stop in zip(here, stops, strict=True)
        )
        yield here
