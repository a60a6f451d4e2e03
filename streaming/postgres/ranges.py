"""Ranges of keys: into which a table is divided for its readers, and what of them is still to be read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from schemas.position import Key, order_key
from state.values.chunks import Chunk, KeyRange


def divided(sample: Sequence[Key], last: Key, count: int) -> tuple[KeyRange, ...]:
    """Ranges from −∞ up to `last`, `count` of them or fewer, with about as many keys of the sample in each.

    `sample` may be empty, and in any order; what lies behind `last` does not count.
    """
    ordered = sorted({order_key(key): key for key in sample}.items())
    inside = [key for place, key in ordered if place < order_key(last)]
    places = (len(inside) * number // count for number in range(1, count))
    bounds = [inside[place] for place in dict.fromkeys(places) if place < len(inside)] if inside else []
    edges = [None, *bounds, last]
    return tuple(KeyRange(after, upto) for after, upto in pairwise(edges))


def unread(ranges: Sequence[KeyRange], chunks: Sequence[Chunk]) -> tuple[KeyRange, ...]:
    """What is left of the ranges, each without the chunks that were read at its beginning. Chunks come in any order."""
    begun = {_place(chunk.keys.after): chunk.keys for chunk in chunks}
    left = []
    for keys in ranges:
        after, is_open = keys.after, True
        while is_open and (read := begun.get(_place(after))) is not None:
            after, is_open = read.upto, read.upto is not None and _below(read.upto, keys.upto)
        if is_open:
            left.append(KeyRange(after, keys.upto))
    return tuple(left)


def _place(bound: Key | None) -> Key | None:
    return None if bound is None else order_key(bound)


def _below(bound: Key, upto: Key | None) -> bool:
    return upto is None or order_key(bound) < order_key(upto)
