"""Progress that says what is not so."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from schemas.position import position_to_text
from schemas.records import VnodeProgress
from streaming.verify.findings import Rule
from tests.kit.histories import History, Item, ordered
from tests.kit.mutants.spots import barrier_at, barrier_indices, mutant, set_barrier

Place = tuple[list[Item], int, int]
"""The place of a progress entry: the partition's items, the barrier's index, the entry's index."""


def _entries(history: History) -> Iterator[tuple[Place, VnodeProgress]]:
    for items in history.output:
        for index in barrier_indices(items):
            for entry, progress in enumerate(barrier_at(items, index).progress):
                yield (items, index, entry), progress


def _replace_entry(place: Place, **fields: object) -> None:
    items, index, entry = place
    entries = list(barrier_at(items, index).progress)
    entries[entry] = replace(entries[entry], **fields)  # type: ignore[arg-type]
    set_barrier(items, index, progress=tuple(entries))


def _add_entry(items: list[Item], index: int, progress: VnodeProgress) -> None:
    set_barrier(items, index, progress=(*barrier_at(items, index).progress, progress))


def _add_finished(history: History, rng: random.Random, *, finished: bool) -> bool:
    """Add the entry of a finished vnode to a later barrier as well."""
    candidates = [(place, progress) for place, progress in _entries(history) if progress.finished]
    candidates = [(place, p) for place, p in candidates if place[1] != barrier_indices(place[0])[-1]]
    if not candidates:
        return False
    (items, index, _), progress = rng.choice(candidates)
    later = rng.choice([at for at in barrier_indices(items) if at > index])
    _add_entry(items, later, replace(progress, finished=finished))
    return True


@mutant(Rule.POSITION_FELL)
def position_fallen(history: History, rng: random.Random) -> bool:
    first: dict[int, str] = {}
    candidates = []
    for place, progress in _entries(history):
        if progress.vnode in first and not progress.finished:
            candidates.append((place, progress))
        elif progress.position is not None and not progress.finished:
            first[progress.vnode] = progress.position
    if not candidates:
        return False
    place, progress = rng.choice(candidates)
    lower = [key for key in history.keys if position_to_text(key) == first[progress.vnode]]
    below = [key for key in history.keys if ordered(key) < ordered(lower[0])]
    _replace_entry(place, position=position_to_text(rng.choice(below)) if below else None)
    return True


@mutant(Rule.FINISHED_UNSET)
def finished_unset(history: History, rng: random.Random) -> bool:
    return _add_finished(history, rng, finished=False)


@mutant(Rule.PROGRESS_UNCHANGED)
def progress_repeated(history: History, rng: random.Random) -> bool:
    return _add_finished(history, rng, finished=True)


@mutant(Rule.PROGRESS_INVALID)
def progress_in_the_wrong_partition(history: History, rng: random.Random) -> bool:
    candidates = list(_entries(history))
    if len(history.output) == 1 or not candidates:
        return False
    (items, _, _), progress = rng.choice(candidates)
    other = rng.choice([partition for partition in history.output if partition is not items])
    _add_entry(other, rng.choice(barrier_indices(other)), progress)
    return True


@mutant(Rule.PROGRESS_INVALID)
def position_unreadable(history: History, rng: random.Random) -> bool:
    candidates = list(_entries(history))
    if not candidates:
        return False
    place, _ = rng.choice(candidates)
    _replace_entry(place, position=rng.choice(["", "[]", "{", "[null]", '["x","y","z","w"]']))
    return True


@mutant(Rule.ROW_COUNT_WRONG)
def row_count_wrong(history: History, rng: random.Random) -> bool:
    candidates = list(_entries(history))
    if not candidates:
        return False
    place, progress = rng.choice(candidates)
    _replace_entry(place, row_count=progress.row_count + rng.choice([-1, 1, 1000]))
    return True


@mutant(Rule.ROW_COUNT_WRONG)
def finished_too_early(history: History, rng: random.Random) -> bool:
    """A vnode is called finished while rows above its position were never read."""
    tables = dict(history.tables())
    candidates = []
    for place, progress in _entries(history):
        barrier = barrier_at(place[0], place[1])
        unread = [
            key
            for key in tables[barrier.prev]
            if history.vnode(key) == progress.vnode and not history.covers(barrier.curr, key)
        ]
        if unread:
            candidates.append(place)
    if not candidates:
        return False
    _replace_entry(rng.choice(candidates), finished=True)
    return True
