"""Keys of an output that UPDATEs move, and the ways to get that wrong."""

from __future__ import annotations

import random
from dataclasses import replace

from schemas.records import Change, Op
from streaming.verify.findings import Rule
from tests.kit.histories import History, Item
from tests.kit.mutants.spots import change_of, item_at, mutant, pick, spots_of


def _is_moved(items: list[Item], index: int) -> bool:
    """True if a DELETE is followed by the INSERT of the same UPDATE."""
    source = items[index].source
    is_first = source is not None and source.op is Op.UPDATE and change_of(items[index]).op is Op.DELETE
    return is_first and any(_is_second(items[index], later) for later in items[index + 1 :])


def _is_second(first: Item, later: Item) -> bool:
    return later.key == first.key and later.source is first.source


def _moved(history: History, rng: random.Random) -> tuple[list[Item], int, int] | None:
    """A key that an UPDATE moves: the output's partition, and where its DELETE and INSERT are."""
    spots = [spot for spot in spots_of(history) if _is_moved(history.output[spot[0]], spot[1])]
    if not spots:
        return None
    number, first = rng.choice(spots)
    items = history.output[number]
    return (
        items,
        first,
        next(at for at in range(first + 1, len(items)) if _is_second(items[first], items[at])),
    )


@mutant(Rule.REORDERED)
def moved_key_inserted_first(history: History, rng: random.Random) -> bool:
    if (found := _moved(history, rng)) is None:
        return False
    items, first, second = found
    items[first], items[second] = items[second], items[first]
    return True


@mutant(Rule.LOST)
def moved_key_left_behind(history: History, rng: random.Random) -> bool:
    if (found := _moved(history, rng)) is None:
        return False
    del found[0][found[1]]
    return True


@mutant(Rule.CHANGED)
def moved_key_deleted_by_its_new_name(history: History, rng: random.Random) -> bool:
    if (found := _moved(history, rng)) is None:
        return False
    items, first, second = found
    items[first] = replace(items[first], sent_key=items[second].sent_key)
    return True


@mutant(Rule.DIFFERENT)
def moved_key_updated(history: History, rng: random.Random) -> bool:
    if (found := _moved(history, rng)) is None:
        return False
    items, first, second = found
    both = Change(Op.UPDATE, change_of(items[first]).before, change_of(items[second]).after)
    items[second] = replace(items[second], change=both)
    del items[first]
    return True


@mutant(Rule.DIFFERENT)
def key_that_stays_sent_as_moved(history: History, rng: random.Random) -> bool:
    spot = pick(history, rng, lambda item: change_of(item).op is Op.UPDATE)
    if spot is None:
        return False
    item, change = item_at(history, spot), change_of(item_at(history, spot))
    halves = Change(Op.DELETE, change.before, None), Change(Op.INSERT, None, change.after)
    history.output[spot[0]][spot[1] : spot[1] + 1] = [replace(item, change=half) for half in halves]
    return True
