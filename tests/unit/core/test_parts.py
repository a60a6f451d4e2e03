"""Where the parts of a long interval end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.core.offset_ranges import part_ends

PARTITIONS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 120)), min_size=1, max_size=4)


@given(PARTITIONS, st.integers(1, 50))
def test_parts_are_small_and_leave_the_last_record_of_each_partition_to_the_end(
    ranges: list[tuple[int, int]], most: int
) -> None:
    first, end = [low for low, _ in ranges], [low + count for low, count in ranges]
    before = tuple(first)
    for until in part_ends(first, end, most):
        assert 1 <= sum(until) - sum(before) <= most + len(ranges)
        assert all(a <= b for a, b in zip(before, until, strict=True))
        assert all(b < stop or b == low for b, stop, low in zip(until, end, first, strict=True))
        before = until
    assert sum(end) - sum(before) <= most + len(ranges)
