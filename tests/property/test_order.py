"""Key order on whole columns against Python's `<` on `order_key`, which is tested against its specification."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from schemas.position import Key, order_key
from schemas.table import Column
from state.values.arrays import above, at_most, changes_of_key, key_at, sort_order, within
from tests.kit.values import key_column_lists, values_of


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[tuple[Column, ...], list[Key]]:
    """Keys of a few values a column, so that many are equal in their first ones."""
    columns = draw(key_column_lists(max_size=3))
    pools = [draw(st.lists(values_of(column.type), min_size=1, max_size=3)) for column in columns]
    return columns, draw(
        st.lists(st.tuples(*(st.sampled_from(pool) for pool in pools)), min_size=2, max_size=12)
    )


def arrays(columns: tuple[Column, ...], keys: list[Key]) -> list[pa.Array]:
    return [pa.array([key[i] for key in keys], c.type.arrow) for i, c in enumerate(columns)]


@given(keyed_rows())
def test_rows_are_sorted_as_their_order_keys_are(drawn: tuple[tuple[Column, ...], list[Key]]) -> None:
    columns, keys = drawn
    order: list[int] = sort_order(arrays(columns, keys)).to_pylist()
    assert [order_key(keys[i]) for i in order] == sorted(order_key(key) for key in keys)


@given(keyed_rows(), st.data())
def test_rows_are_compared_with_bounds_as_their_order_keys_are(
    drawn: tuple[tuple[Column, ...], list[Key]], data: st.DataObject
) -> None:
    columns, keys = drawn
    bounds: st.SearchStrategy[Any] = st.none() | st.sampled_from(keys)
    low, high = data.draw(bounds), data.draw(bounds)
    columnar = arrays(columns, keys)
    is_above = [low is None or order_key(key) > order_key(low) for key in keys]
    is_below = [high is None or order_key(key) <= order_key(high) for key in keys]
    assert above(columnar, low).tolist() == is_above
    assert within(columnar, low, high).tolist() == [a and b for a, b in zip(is_above, is_below, strict=True)]
    if high is not None:
        assert at_most(columnar, high).tolist() == is_below


@given(keyed_rows())
def test_a_key_that_differs_from_the_row_before_is_found(drawn: tuple[tuple[Column, ...], list[Key]]) -> None:
    columns, keys = drawn
    rows = sorted(keys, key=order_key)
    expected = [i == 0 or key != rows[i - 1] for i, key in enumerate(rows)]
    columnar = arrays(columns, rows)
    assert changes_of_key(columnar).tolist() == expected
    assert [key_at(columnar, i) for i in range(len(rows))] == rows


def test_no_rows_have_no_order_to_keep() -> None:
    none = [pa.array([], pa.int64()), pa.array([], pa.string())]
    assert changes_of_key(none).tolist() == []
    assert sort_order(none).to_pylist() == []
    assert within(none, (1, "a"), None).tolist() == []
