"""Barriers and whole intervals that are lost, doubled, invented or wrong."""

from __future__ import annotations

import random
from dataclasses import replace

from schemas.records import BarrierKind, Stop
from streaming.verify.findings import Rule
from tests.kit.histories import History, Item
from tests.kit.mutants.spots import barrier_at, barrier_indices, mutant, set_barrier


def _epochs(history: History) -> list[int]:
    return [item.barrier.curr for item in history.output[0] if item.barrier is not None]


def _interval(items: list[Item], epoch: int) -> slice:
    barriers = barrier_indices(items)
    last = next(index for index in barriers if items[index].barrier.curr == epoch)  # type: ignore[union-attr]
    first = max((index + 1 for index in barriers if index < last), default=0)
    return slice(first, last + 1)


@mutant(Rule.BARRIER_MISSING)
def whole_epoch_dropped(history: History, rng: random.Random) -> bool:
    epochs = _epochs(history)
    if len(epochs) < 3:
        return False
    epoch = rng.choice(epochs[1:-1])  # without the first or last it is a shorter, legal history
    for items in history.output:
        del items[_interval(items, epoch)]
    return True


@mutant(Rule.BARRIER_UNKNOWN)
def whole_epoch_replayed(history: History, rng: random.Random) -> bool:
    epoch = rng.choice(_epochs(history))
    for items in history.output:
        again = _interval(items, epoch)
        items[again.stop : again.stop] = items[again]
    return True


@mutant(Rule.BARRIER_UNKNOWN)
def barrier_doubled_in_one_partition(history: History, rng: random.Random) -> bool:
    items = rng.choice(history.output)
    index = rng.choice(barrier_indices(items))
    items.insert(index, items[index])
    return True


@mutant(Rule.BARRIER_MISSING)
def barrier_missing_in_one_partition(history: History, rng: random.Random) -> bool:
    if len(history.output) == 1:
        return False
    items = rng.choice(history.output)
    barriers = barrier_indices(items)
    if len(barriers) < 2:
        return False
    del items[rng.choice(barriers)]
    return True


@mutant(Rule.BARRIER_UNKNOWN)
def barrier_invented(history: History, rng: random.Random) -> bool:
    items = rng.choice(history.output)
    index = rng.choice(barrier_indices(items))
    barrier = barrier_at(items, index)
    items.insert(
        index + 1, Item(barrier=replace(barrier, curr=barrier.curr + 1, prev=barrier.curr, progress=()))
    )
    return True


def _with_barrier(history: History, rng: random.Random, **fields: object) -> bool:
    items = rng.choice(history.output)
    set_barrier(items, rng.choice(barrier_indices(items)), **fields)
    return True


@mutant(Rule.BARRIER_DIFFERS)
def prev_wrong(history: History, rng: random.Random) -> bool:
    return _with_barrier(history, rng, prev=7)


@mutant(Rule.BARRIER_DIFFERS)
def kind_wrong(history: History, rng: random.Random) -> bool:
    items = rng.choice(history.output)
    index = rng.choice(barrier_indices(items))
    kinds = [kind for kind in BarrierKind if kind is not barrier_at(items, index).kind]
    set_barrier(items, index, kind=rng.choice(kinds))
    return True


@mutant(Rule.BARRIER_DIFFERS)
def partitions_wrong(history: History, rng: random.Random) -> bool:
    return _with_barrier(history, rng, partitions=len(history.output) + 1)


@mutant(Rule.BARRIER_DIFFERS)
def mutation_passed_on(history: History, rng: random.Random) -> bool:
    return _with_barrier(history, rng, mutation=Stop())
