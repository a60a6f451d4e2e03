"""A long interval in parts: where each of them ends in every partition of the upstream.

While no job is open, no output shows what lies between two barriers, so an interval may be brought into the log part by
part, each remembered in the journal. All partitions advance by the same share of what is left of them, so the parts
end together, and no part waits for one long partition. The last record of a partition may be the marker of the barrier
that ends the interval, which a run that goes on behind a part has to find again: no part but the last takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


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
