"""The registry of mutants, and places in a history that they change."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from schemas.position import Key
from schemas.records import Barrier, Change, Row
from streaming.verify.findings import Rule
from tests.kit.histories import History, Item

Mutant = Callable[[History, random.Random], bool]
Spot = tuple[int, int]
"""Partition and index of an output record."""

MUTANTS: dict[str, tuple[Mutant, frozenset[Rule] | None]] = {}
"""By name: how to break, and the rules of which at least one has to be named (None: any)."""


def mutant(*rules: Rule) -> Callable[[Mutant], Mutant]:
    def register(function: Mutant) -> Mutant:
        MUTANTS[function.__name__] = function, frozenset(rules) or None
        return function

    return register


def spots_of(history: History, wanted: Callable[[Item], bool] = lambda _: True) -> list[Spot]:
    return [
        (number, index)
        for number, items in enumerate(history.output)
        for index, item in enumerate(items)
        if item.change is not None and wanted(item)
    ]


def item_at(history: History, spot: Spot) -> Item:
    return history.output[spot[0]][spot[1]]


def pick(
    history: History, rng: random.Random, wanted: Callable[[Item], bool] = lambda _: True
) -> Spot | None:
    spots = spots_of(history, wanted)
    return rng.choice(spots) if spots else None


def barrier_indices(items: list[Item]) -> list[int]:
    return [index for index, item in enumerate(items) if item.barrier is not None]


def barrier_at(items: list[Item], index: int) -> Barrier:
    barrier = items[index].barrier
    assert barrier is not None
    return barrier


def set_barrier(items: list[Item], index: int, **fields: object) -> None:
    """Replace fields of a barrier."""
    items[index] = Item(barrier=replace(barrier_at(items, index), **fields))  # type: ignore[arg-type]


def next_barrier(items: list[Item], index: int) -> int:
    return next(at for at in barrier_indices(items) if at > index)


def change_of(item: Item) -> Change:
    assert item.change is not None
    return item.change


def key_of(item: Item) -> Key:
    assert item.key is not None
    return item.key


def is_snapshot(item: Item) -> bool:
    return item.source is None


def alter(history: History, row: Row) -> Row:
    """The row with another value in a column outside the key, or the row itself if it has none such."""
    index = place_of_n(history)
    if index is None:
        return row
    return (*row[:index], 99 if row[index] != 99 else 98, *row[index + 1 :])


def place_of_n(history: History) -> int | None:
    """The place of `n` in the output's rows, None where it isn't there as it is."""
    places = (at for at, each in enumerate(history.columns) if (each.source, each.mask) == ("n", None))
    return next(places, None)


def record_of(
    history: History, key: Key, change: Change, row: Row | None, source: Change | None = None
) -> Item:
    """A record with the key that a row of the table gives it."""
    sent_key = history.sent_key(row) if history.key and row is not None else None
    return Item(key, change, source=source, sent_key=sent_key)


def project(history: History, row: Row | None) -> Row | None:
    return None if row is None else history.projected(row)
