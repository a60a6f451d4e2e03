from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro.chunks import chunks, rows_within

WIDTHS = st.lists(st.integers(0, 60), max_size=30)


@given(widths=WIDTHS, most_rows=st.integers(1, 10), most_bytes=st.integers(1, 200))
def test_chunks_are_the_rows_in_order_and_each_fits_or_is_one_row(
    widths: list[int], most_rows: int, most_bytes: int
) -> None:
    rows = pa.table({"n": pa.array(range(len(widths)), pa.int64()), "v": [b"x" * width for width in widths]})
    found = list(chunks(rows.slice(0), most_rows, most_bytes))
    assert [n for chunk in found for n in chunk["n"].to_pylist()] == list(range(len(widths)))
    for chunk in found:
        assert 1 <= chunk.num_rows <= most_rows
        assert chunk.num_rows == 1 or chunk.nbytes <= most_bytes


def test_rows_of_a_size_are_counted_by_what_is_less() -> None:
    assert rows_within(1_000, 60_000, most_rows=500, most_bytes=1 << 20) == 500
    assert rows_within(1_000, 1_000 << 20, most_rows=500, most_bytes=8 << 20) == 8
    assert rows_within(3, 3 << 30, most_rows=500, most_bytes=8 << 20) == 1
    assert rows_within(0, 0, most_rows=500, most_bytes=8 << 20) == 500
