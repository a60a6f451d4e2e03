"""Ranges of keys: how a table is divided."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.position import Key
from state.values.chunks import KeyRange
from streaming.postgres.reader import divided

KEYS = st.tuples(st.sampled_from(["", "a", "é", "z", "\U0001f642"]), st.integers(-3, 3))
ANY = [(text, number) for text in ["", "a", "é", "z", "\U0001f642"] for number in range(-3, 4)]


@given(st.lists(KEYS), KEYS, st.integers(1, 6))
def test_ranges_follow_each_other_to_the_last_key(sample: list[Key], last: Key, count: int) -> None:
    ranges = divided(sample, last, count)
    assert 1 <= len(ranges) <= count
    assert ranges[0].after is None
    assert ranges[-1].upto == last
    for key in ANY:
        holders = [keys for keys in ranges if keys.holds(key)]
        assert len(holders) == KeyRange(None, last).holds(key)


def test_ranges_have_about_as_many_keys_each() -> None:
    ranges = divided([(number,) for number in range(1_000)], (999,), 4)
    assert [keys.upto for keys in ranges] == [(250,), (500,), (750,), (999,)] or [
        keys.upto for keys in ranges
    ] == [(249,), (499,), (749,), (999,)]
