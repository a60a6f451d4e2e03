"""Rows and changes that are lost, doubled, altered or moved."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from schemas.kinds.projection import OutputColumn
from schemas.records import Change, Op
from streaming.verify.findings import Rule
from tests.kit.histories import History, Item
from tests.kit.masks import shown, text_of
from tests.kit.mutants.spots import (
    alter,
    barrier_at,
    barrier_indices,
    change_of,
    is_snapshot,
    item_at,
    key_of,
    mutant,
    next_barrier,
    pick,
    place_of_n,
    project,
    record_of,
    spots_of,
)


@mutant(Rule.LOST)
def dropped(history: History, rng: random.Random) -> bool:
    spot = pick(history, rng)
    if spot is not None:
        del history.output[spot[0]][spot[1]]
    return spot is not None


@mutant(Rule.EXTRA)
def doubled(history: History, rng: random.Random) -> bool:
    spot = pick(history, rng)
    if spot is not None:
        history.output[spot[0]].insert(spot[1], item_at(history, spot))
    return spot is not None


@mutant(Rule.CHANGED)
def after_changed(history: History, rng: random.Random) -> bool:
    return _with_other_row(history, rng, "after")


@mutant(Rule.CHANGED)
def before_wrong(history: History, rng: random.Random) -> bool:
    return _with_other_row(history, rng, "before")


def _with_other_row(history: History, rng: random.Random, half: str) -> bool:
    spot = pick(history, rng, lambda item: getattr(item.change, half) is not None)
    if spot is None or place_of_n(history) is None:
        return False
    item = item_at(history, spot)
    row = alter(history, getattr(item.change, half))
    change = replace(change_of(item), before=row) if half == "before" else replace(change_of(item), after=row)
    history.output[spot[0]][spot[1]] = replace(item, change=change)
    return True


@mutant(Rule.CHANGED)
def masked_value_shown(history: History, rng: random.Random) -> bool:
    """A value goes out as it is stored, which a mask would have changed."""
    return _with_masked(
        history, rng, lambda column, value: text_of(value) if column.mask == "hash" else value
    )


@mutant(Rule.CHANGED)
def hashed_by_another_key(history: History, rng: random.Random) -> bool:
    return _with_masked(history, rng, lambda column, value: shown(column, value, b"another"))


def _with_masked(history: History, rng: random.Random, show: Callable[[OutputColumn, Any], Any]) -> bool:
    spot = pick(history, rng, lambda item: item.source is not None and change_of(item).after is not None)
    if spot is None:
        return False
    item = item_at(history, spot)
    assert item.source is not None and item.source.after is not None  # noqa: PT018
    stored = dict(zip(history.table.column_names, item.source.after, strict=True))
    row = tuple(
        value if column.mask is None or stored[column.source] is None else show(column, stored[column.source])
        for column, value in zip(history.columns, change_of(item).after or (), strict=True)
    )
    history.output[spot[0]][spot[1]] = replace(item, change=replace(change_of(item), after=row))
    return row != change_of(item).after


@mutant(Rule.LOST, Rule.DIFFERENT, Rule.REORDERED, Rule.CHANGED)
def moved_over_a_barrier(history: History, rng: random.Random) -> bool:
    spot = pick(history, rng)
    if spot is None:
        return False
    items = history.output[spot[0]]
    barrier = next_barrier(items, spot[1])
    if barrier == len(items) - 1:
        return False
    items.insert(barrier, items.pop(spot[1]))  # popped first, so this lands behind the barrier
    return True


def _same_key_another_change(one: Item, other: Item) -> bool:
    return one.key == other.key and repr(one.change) != repr(other.change)


@mutant(Rule.REORDERED)
def reordered_within_a_key(history: History, rng: random.Random) -> bool:
    pairs = [
        (history.output[number], first, second)
        for number, first in spots_of(history)
        for second in range(first + 1, next_barrier(history.output[number], first))
        if _same_key_another_change(history.output[number][first], history.output[number][second])
    ]
    if not pairs:
        return False
    items, first, second = rng.choice(pairs)
    items[first], items[second] = items[second], items[first]
    return True


@mutant(Rule.EXTRA)
def deleted_row_resurrected(history: History, rng: random.Random) -> bool:
    spot = pick(history, rng, lambda item: change_of(item).op is Op.DELETE)
    if spot is None:
        return False
    item = item_at(history, spot)
    again = replace(item, change=Change(Op.INSERT, None, change_of(item).before))
    history.output[spot[0]].insert(next_barrier(history.output[spot[0]], spot[1]), again)
    return True


@mutant(Rule.MISROUTED)
def misrouted(history: History, rng: random.Random) -> bool:
    spot = pick(history, rng)
    if spot is None or len(history.output) == 1:
        return False
    interval = sum(index < spot[1] for index in barrier_indices(history.output[spot[0]]))
    item = history.output[spot[0]].pop(spot[1])
    other = rng.choice([number for number in range(len(history.output)) if number != spot[0]])
    history.output[other].insert(barrier_indices(history.output[other])[interval], item)
    return True


@mutant(Rule.EXTRA, Rule.MISROUTED, Rule.BEYOND_POSITION, Rule.DIFFERENT, Rule.REORDERED, Rule.CHANGED)
def under_another_key(history: History, rng: random.Random) -> bool:
    spot = pick(history, rng)
    if spot is None or len(history.keys) == 1:
        return False
    item = item_at(history, spot)
    other = rng.choice([key for key in history.keys if key != item.key])
    named = dict(zip(history.key, item.sent_key or (), strict=True)) | dict(
        zip(history.table.primary_key, other, strict=True)
    )
    sent_key = tuple(named[name] for name in history.key) or None
    history.output[spot[0]][spot[1]] = replace(item, key=other, sent_key=sent_key)
    return True


@mutant(Rule.BEYOND_POSITION)
def covered_too_early(history: History, rng: random.Random) -> bool:
    """A live change whose key lies above the position is sent all the same."""
    candidates = [
        (step.barrier.curr, item)
        for step in history.steps
        if step.barrier.curr in history.positions
        for partition in step.partitions
        for item in partition
        if not history.covers(step.barrier.curr, key_of(item))
    ]
    if not candidates:
        return False
    epoch, item = rng.choice(candidates)
    home = history.output[history.home(key_of(item))]
    at = next(index for index in barrier_indices(home) if home[index].barrier.curr == epoch)  # type: ignore[union-attr]
    if at == 0:  # before the start: another fault
        return False
    change = change_of(item)
    early = Change(change.op, project(history, change.before), project(history, change.after))
    home.insert(at, record_of(history, key_of(item), early, change.row, change))
    return True


@mutant(Rule.LOST)
def lost_behind_the_last_key(history: History, rng: random.Random) -> bool:
    """In the interval that finishes a vnode, an insert is lost (the completion seam)."""
    candidates = []
    for number, index in spots_of(
        history, lambda item: item.source is not None and change_of(item).op is Op.INSERT
    ):
        items = history.output[number]
        closing = barrier_at(items, next_barrier(items, index))
        vnode = history.vnode(key_of(items[index]))
        if (
            history.positions[closing.curr][vnode][1]
            and not history.positions[closing.prev].get(vnode, (None, False))[1]
        ):
            candidates.append((number, index))
    if not candidates:
        return False
    number, index = rng.choice(candidates)
    del history.output[number][index]
    return True


@mutant(Rule.EXTRA, Rule.CHANGED, Rule.DIFFERENT)
def snapshot_row_sent_again_later(history: History, rng: random.Random) -> bool:
    spots = [
        (number, index)
        for number, index in spots_of(history, is_snapshot)
        if next_barrier(history.output[number], index) != len(history.output[number]) - 1
    ]
    if not spots:
        return False
    number, index = rng.choice(spots)
    items = history.output[number]
    later = rng.choice([at for at in barrier_indices(items) if at > index][1:])
    items.insert(later, items[index])
    return True


@mutant(Rule.CHANGED, Rule.LOST, Rule.DIFFERENT)
def snapshot_read_at_the_wrong_barrier(history: History, rng: random.Random) -> bool:
    """A slice shows a row as of the barrier that closes the interval, and so swallows its change."""
    candidates = []
    for number, index in spots_of(history, is_snapshot):
        items = history.output[number]
        for later in range(index + 1, next_barrier(items, index)):
            same_key = items[later].key == items[index].key
            if same_key and change_of(items[later]).op is Op.UPDATE:
                candidates.append((items, index, later))
                break
    if not candidates:
        return False
    items, index, later = rng.choice(candidates)
    items[index] = replace(items[index], change=Change(Op.INSERT, None, change_of(items[later]).after))
    del items[later]
    return True


@mutant(Rule.DATA_BEHIND_LAST_BARRIER)
def record_behind_the_last_barrier(history: History, rng: random.Random) -> bool:
    spot = pick(history, rng)
    if spot is not None:
        history.output[spot[0]].append(item_at(history, spot))
    return spot is not None


@mutant(Rule.START_NOT_BARRIER)
def record_before_the_first_barrier(history: History, rng: random.Random) -> bool:
    spot = pick(history, rng)
    if spot is not None:
        history.output[spot[0]].insert(0, item_at(history, spot))
    return spot is not None


@mutant(Rule.DIFFERENT)
def half_visible_update_sent_whole(history: History, rng: random.Random) -> bool:
    def half_visible(item: Item) -> bool:
        return item.source is not None and item.source.op is Op.UPDATE and change_of(item).op is not Op.UPDATE

    spot = pick(history, rng, half_visible)
    if spot is None:
        return False
    item = item_at(history, spot)
    assert item.source is not None
    both = Change(Op.UPDATE, project(history, item.source.before), project(history, item.source.after))
    history.output[spot[0]][spot[1]] = replace(item, change=both)
    return True


@mutant(Rule.LOST)
def update_without_visible_difference_left_out(history: History, rng: random.Random) -> bool:
    def no_difference(item: Item) -> bool:
        change = change_of(item)
        return change.op is Op.UPDATE and repr(change.before) == repr(change.after)

    spot = pick(history, rng, no_difference)
    if spot is not None:
        del history.output[spot[0]][spot[1]]
    return spot is not None


@mutant(Rule.EXTRA)
def hidden_row_sent(history: History, rng: random.Random) -> bool:
    """The snapshot read sends a row that the filter hides."""
    tables = dict(history.tables())
    candidates = []
    for number, items in enumerate(history.output):
        for index in barrier_indices(items)[1:]:
            barrier = barrier_at(items, index)
            for key, row in tables[barrier.prev].items():
                newly = history.covers(barrier.curr, key) and not history.covers(barrier.prev, key)
                quiet = not any(item.key == key for item in items[: index + 1])
                if newly and quiet and history.home(key) == number and history.show(row) is None:
                    candidates.append((items, index, key, row))
    if not candidates:
        return False
    items, index, key, row = rng.choice(candidates)
    items.insert(index, record_of(history, key, Change(Op.INSERT, None, project(history, row)), row))
    return True
