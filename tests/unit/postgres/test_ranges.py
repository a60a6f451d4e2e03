"""Ranges of keys: how a table is divided, and what is left of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from schemas.position import Key
from state.values.chunks import Chunk, KeyRange, TransactionSnapshot
from streaming.postgres.reader import divided, unread

KEYS = st.tuples(st.sampled_from(["", "a", "é", "z", "\U0001f642"]), st.integers(-3, 3))
ANY = [(text, number) for text in ["", "a", "é", "z", "\U0001f642"] for number in range(-3, 4)]


def chunk(after: Key | None, upto: Key | None) -> Chunk:
    return Chunk(KeyRange(after, upto), TransactionSnapshot(1, 1), 0, 0)


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


@given(st.data(), st.lists(KEYS, max_size=8), KEYS, st.integers(1, 4))
def test_what_is_left_is_what_no_chunk_has(
    data: st.DataObject, sample: list[Key], last: Key, count: int
) -> None:
    ranges = divided(sample, last, count)
    chunks: list[Chunk] = []
    for keys in ranges:
        after: Key | None = keys.after
        while data.draw(st.booleans()):
            inside = [key for key in ANY if KeyRange(after, keys.upto).holds(key)]
            upto = data.draw(st.sampled_from(inside)) if inside else keys.upto
            chunks.append(chunk(after, upto))
            if upto == keys.upto:
                break
            after = upto
    chunks = data.draw(st.permutations(chunks))
    left = unread(ranges, chunks)
    for key in ANY:
        read = any(each.keys.holds(key) for each in chunks)
        wanted = any(keys.holds(key) for keys in ranges) and not read
        assert held(left, key) == wanted


def held(ranges: Sequence[KeyRange], key: Key) -> bool:
    assert sum(keys.holds(key) for keys in ranges) <= 1
    return any(keys.holds(key) for keys in ranges)


def test_a_whole_table_is_left_or_not() -> None:
    assert unread([KeyRange()], []) == (KeyRange(),)
    assert unread([KeyRange()], [chunk(None, None)]) == ()
    assert unread([KeyRange()], [chunk(None, ("a", 1))]) == (KeyRange(("a", 1), None),)
