"""Ways to break a clean output, one fault at a time. Each is something that a wrong service could do.

A mutant changes `history.output` in place and says whether it could: a history may hold no record that
this kind of fault applies to. What it changes is never equivalent to the clean output.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from schemas.position import Key, position_to_text
from schemas.records import BarrierKind, Change, Op, Row, Stop, VnodeProgress
from streaming.verify.findings import Rule
from tests.kit.histories import History, Item, fold, ordered

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


def _spots(history: History, wanted: Callable[[Item], bool] = lambda _: True) -> list[Spot]:
    return [
        (number, index)
        for number, items in enumerate(history.output)
        for index, item in enumerate(items)
        if item.change is not None and wanted(item)
    ]


def _at(history: History, spot: Spot) -> Item:
    return history.output[spot[0]][spot[1]]


def _pick(
    history: History, rng: random.Random, wanted: Callable[[Item], bool] = lambda _: True
) -> Spot | None:
    spots = _spots(history, wanted)
    return rng.choice(spots) if spots else None


def _barrier_indices(items: list[Item]) -> list[int]:
    return [index for index, item in enumerate(items) if item.barrier is not None]


def _next_barrier(items: list[Item], index: int) -> int:
    return next(at for at in _barrier_indices(items) if at > index)


def _change(item: Item) -> Change:
    assert item.change is not None
    return item.change


def _key(item: Item) -> Key:
    assert item.key is not None
    return item.key


def _is_snapshot(item: Item) -> bool:
    return item.source is None


def _alter(history: History, row: Row) -> Row:
    """The row with another value in a column outside the key, or the row itself if it has none such."""
    if "n" not in history.columns:
        return row
    index = history.columns.index("n")
    return (*row[:index], 99 if row[index] != 99 else 98, *row[index + 1 :])


@mutant(Rule.LOST)
def dropped(history: History, rng: random.Random) -> bool:
    spot = _pick(history, rng)
    if spot is not None:
        del history.output[spot[0]][spot[1]]
    return spot is not None


@mutant(Rule.EXTRA)
def doubled(history: History, rng: random.Random) -> bool:
    spot = _pick(history, rng)
    if spot is not None:
        history.output[spot[0]].insert(spot[1], _at(history, spot))
    return spot is not None


@mutant(Rule.CHANGED)
def after_changed(history: History, rng: random.Random) -> bool:
    return _with_other_row(history, rng, "after")


@mutant(Rule.CHANGED)
def before_wrong(history: History, rng: random.Random) -> bool:
    return _with_other_row(history, rng, "before")


def _with_other_row(history: History, rng: random.Random, half: str) -> bool:
    spot = _pick(history, rng, lambda item: getattr(item.change, half) is not None)
    if spot is None or "n" not in history.columns:
        return False
    item = _at(history, spot)
    row = _alter(history, getattr(item.change, half))
    change = replace(_change(item), before=row) if half == "before" else replace(_change(item), after=row)
    history.output[spot[0]][spot[1]] = replace(item, change=change)
    return True


@mutant(Rule.LOST, Rule.DIFFERENT, Rule.REORDERED, Rule.CHANGED)
def moved_over_a_barrier(history: History, rng: random.Random) -> bool:
    spot = _pick(history, rng)
    if spot is None:
        return False
    items = history.output[spot[0]]
    barrier = _next_barrier(items, spot[1])
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
        for number, first in _spots(history)
        for second in range(first + 1, _next_barrier(history.output[number], first))
        if _same_key_another_change(history.output[number][first], history.output[number][second])
    ]
    if not pairs:
        return False
    items, first, second = rng.choice(pairs)
    items[first], items[second] = items[second], items[first]
    return True


@mutant(Rule.EXTRA)
def deleted_row_resurrected(history: History, rng: random.Random) -> bool:
    spot = _pick(history, rng, lambda item: _change(item).op is Op.DELETE)
    if spot is None:
        return False
    item = _at(history, spot)
    again = replace(item, change=Change(Op.INSERT, None, _change(item).before))
    history.output[spot[0]].insert(_next_barrier(history.output[spot[0]], spot[1]), again)
    return True


@mutant(Rule.MISROUTED)
def misrouted(history: History, rng: random.Random) -> bool:
    spot = _pick(history, rng)
    if spot is None or len(history.output) == 1:
        return False
    interval = sum(index < spot[1] for index in _barrier_indices(history.output[spot[0]]))
    item = history.output[spot[0]].pop(spot[1])
    other = rng.choice([number for number in range(len(history.output)) if number != spot[0]])
    history.output[other].insert(_barrier_indices(history.output[other])[interval], item)
    return True


@mutant(Rule.EXTRA, Rule.MISROUTED, Rule.BEYOND_POSITION, Rule.DIFFERENT, Rule.REORDERED, Rule.CHANGED)
def under_another_key(history: History, rng: random.Random) -> bool:
    spot = _pick(history, rng)
    if spot is None or len(history.keys) == 1:
        return False
    item = _at(history, spot)
    other = rng.choice([key for key in history.keys if key != item.key])
    history.output[spot[0]][spot[1]] = replace(item, key=other)
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
        if not history.covers(step.barrier.curr, _key(item))
    ]
    if not candidates:
        return False
    epoch, item = rng.choice(candidates)
    home = history.output[history.home(_key(item))]
    at = next(index for index in _barrier_indices(home) if home[index].barrier.curr == epoch)  # type: ignore[union-attr]
    if at == 0:  # before the start: another fault
        return False
    before, after = _project(history, _change(item).before), _project(history, _change(item).after)
    home.insert(at, Item(item.key, Change(_change(item).op, before, after), source=item.change))
    return True


def _project(history: History, row: Row | None) -> Row | None:
    if row is None:
        return None
    by_name = dict(zip(history.table.column_names, row, strict=True))
    return tuple(by_name[name] for name in history.columns)


@mutant(Rule.LOST)
def lost_behind_the_last_key(history: History, rng: random.Random) -> bool:
    """In the interval that finishes a vnode, an insert is lost (the completion seam)."""
    candidates = []
    for number, index in _spots(
        history, lambda item: item.source is not None and _change(item).op is Op.INSERT
    ):
        items = history.output[number]
        closing = items[_next_barrier(items, index)].barrier
        assert closing is not None
        vnode = history.vnode(_key(items[index]))
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


def _epochs(history: History) -> list[int]:
    return [item.barrier.curr for item in history.output[0] if item.barrier is not None]


def _interval(items: list[Item], epoch: int) -> slice:
    barriers = _barrier_indices(items)
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
    index = rng.choice(_barrier_indices(items))
    items.insert(index, items[index])
    return True


@mutant(Rule.BARRIER_MISSING)
def barrier_missing_in_one_partition(history: History, rng: random.Random) -> bool:
    if len(history.output) == 1:
        return False
    items = rng.choice(history.output)
    barriers = _barrier_indices(items)
    if len(barriers) < 2:
        return False
    del items[rng.choice(barriers)]
    return True


@mutant(Rule.BARRIER_UNKNOWN)
def barrier_invented(history: History, rng: random.Random) -> bool:
    items = rng.choice(history.output)
    index = rng.choice(_barrier_indices(items))
    barrier = items[index].barrier
    assert barrier is not None
    items.insert(
        index + 1, Item(barrier=replace(barrier, curr=barrier.curr + 1, prev=barrier.curr, progress=()))
    )
    return True


def _with_barrier(history: History, rng: random.Random, **fields: object) -> bool:
    items = rng.choice(history.output)
    index = rng.choice(_barrier_indices(items))
    barrier = items[index].barrier
    assert barrier is not None
    items[index] = Item(barrier=replace(barrier, **fields))  # type: ignore[arg-type]
    return True


@mutant(Rule.BARRIER_DIFFERS)
def prev_wrong(history: History, rng: random.Random) -> bool:
    return _with_barrier(history, rng, prev=7)


@mutant(Rule.BARRIER_DIFFERS)
def kind_wrong(history: History, rng: random.Random) -> bool:
    items = rng.choice(history.output)
    index = rng.choice(_barrier_indices(items))
    barrier = items[index].barrier
    assert barrier is not None
    other = rng.choice([kind for kind in BarrierKind if kind is not barrier.kind])
    items[index] = Item(barrier=replace(barrier, kind=other))
    return True


@mutant(Rule.BARRIER_DIFFERS)
def partitions_wrong(history: History, rng: random.Random) -> bool:
    return _with_barrier(history, rng, partitions=len(history.output) + 1)


@mutant(Rule.BARRIER_DIFFERS)
def mutation_passed_on(history: History, rng: random.Random) -> bool:
    return _with_barrier(history, rng, mutation=Stop())


Told = tuple[list[Item], int, int]
"""Where a progress entry stands: the partition's items, the barrier's index, the entry's index."""


def _told(history: History) -> Iterator[tuple[Told, VnodeProgress]]:
    for items in history.output:
        for index in _barrier_indices(items):
            barrier = items[index].barrier
            assert barrier is not None
            for entry, progress in enumerate(barrier.progress):
                yield (items, index, entry), progress


def _retell(told: Told, progress: VnodeProgress) -> None:
    items, index, entry = told
    barrier = items[index].barrier
    assert barrier is not None
    entries = list(barrier.progress)
    entries[entry] = progress
    items[index] = Item(barrier=replace(barrier, progress=tuple(entries)))


@mutant(Rule.POSITION_FELL)
def position_fallen(history: History, rng: random.Random) -> bool:
    first: dict[int, str] = {}
    candidates = []
    for told, progress in _told(history):
        if progress.vnode in first and not progress.finished:
            candidates.append((told, progress))
        elif progress.position is not None and not progress.finished:
            first[progress.vnode] = progress.position
    if not candidates:
        return False
    told, progress = rng.choice(candidates)
    lower = [key for key in history.keys if position_to_text(key) == first[progress.vnode]]
    below = [key for key in history.keys if ordered(key) < ordered(lower[0])]
    _retell(told, replace(progress, position=position_to_text(rng.choice(below)) if below else None))
    return True


@mutant(Rule.FINISHED_UNSET)
def finished_unset(history: History, rng: random.Random) -> bool:
    candidates = [(told, progress) for told, progress in _told(history) if progress.finished]
    candidates = [(told, p) for told, p in candidates if told[1] != _barrier_indices(told[0])[-1]]
    if not candidates:
        return False
    (items, index, _), progress = rng.choice(candidates)
    later = rng.choice([at for at in _barrier_indices(items) if at > index])
    barrier = items[later].barrier
    assert barrier is not None
    entries = (*barrier.progress, replace(progress, finished=False))
    items[later] = Item(barrier=replace(barrier, progress=entries))
    return True


@mutant(Rule.PROGRESS_UNCHANGED)
def progress_told_again(history: History, rng: random.Random) -> bool:
    candidates = [
        (told, p) for told, p in _told(history) if p.finished and told[1] != _barrier_indices(told[0])[-1]
    ]
    if not candidates:
        return False
    (items, index, _), progress = rng.choice(candidates)
    later = rng.choice([at for at in _barrier_indices(items) if at > index])
    barrier = items[later].barrier
    assert barrier is not None
    items[later] = Item(barrier=replace(barrier, progress=(*barrier.progress, progress)))
    return True


@mutant(Rule.PROGRESS_INVALID)
def progress_in_the_wrong_partition(history: History, rng: random.Random) -> bool:
    candidates = list(_told(history))
    if len(history.output) == 1 or not candidates:
        return False
    (items, _, _), progress = rng.choice(candidates)
    other = rng.choice([partition for partition in history.output if partition is not items])
    index = rng.choice(_barrier_indices(other))
    barrier = other[index].barrier
    assert barrier is not None
    other[index] = Item(barrier=replace(barrier, progress=(*barrier.progress, progress)))
    return True


@mutant(Rule.PROGRESS_INVALID)
def position_unreadable(history: History, rng: random.Random) -> bool:
    candidates = list(_told(history))
    if not candidates:
        return False
    told, progress = rng.choice(candidates)
    _retell(told, replace(progress, position=rng.choice(["", "[]", "{", "[null]", '["x","y","z","w"]'])))
    return True


@mutant(Rule.ROW_COUNT_WRONG)
def row_count_wrong(history: History, rng: random.Random) -> bool:
    candidates = list(_told(history))
    if not candidates:
        return False
    told, progress = rng.choice(candidates)
    _retell(told, replace(progress, row_count=progress.row_count + rng.choice([-1, 1, 1000])))
    return True


@mutant(Rule.ROW_COUNT_WRONG)
def finished_too_early(history: History, rng: random.Random) -> bool:
    """A vnode is told to be finished while rows above its position were never read."""
    tables = dict(history.tables())
    candidates = []
    for told, progress in _told(history):
        barrier = told[0][told[1]].barrier
        assert barrier is not None
        unread = [
            key
            for key in tables[barrier.prev]
            if history.vnode(key) == progress.vnode and not history.covers(barrier.curr, key)
        ]
        if unread:
            candidates.append((told, progress))
    if not candidates:
        return False
    told, progress = rng.choice(candidates)
    _retell(told, replace(progress, finished=True))
    return True


@mutant(Rule.EXTRA, Rule.CHANGED, Rule.DIFFERENT)
def snapshot_row_sent_again_later(history: History, rng: random.Random) -> bool:
    spots = [
        (number, index)
        for number, index in _spots(history, _is_snapshot)
        if _next_barrier(history.output[number], index) != len(history.output[number]) - 1
    ]
    if not spots:
        return False
    number, index = rng.choice(spots)
    items = history.output[number]
    later = rng.choice([at for at in _barrier_indices(items) if at > index][1:])
    items.insert(later, items[index])
    return True


@mutant(Rule.CHANGED, Rule.LOST, Rule.DIFFERENT)
def snapshot_read_at_the_wrong_barrier(history: History, rng: random.Random) -> bool:
    """A slice shows a row as of the barrier that closes the interval, and so swallows its change."""
    candidates = []
    for number, index in _spots(history, _is_snapshot):
        items = history.output[number]
        for later in range(index + 1, _next_barrier(items, index)):
            same_key = items[later].key == items[index].key
            if same_key and _change(items[later]).op is Op.UPDATE:
                candidates.append((items, index, later))
                break
    if not candidates:
        return False
    items, index, later = rng.choice(candidates)
    items[index] = replace(items[index], change=Change(Op.INSERT, None, _change(items[later]).after))
    del items[later]
    return True


@mutant(Rule.DATA_BEHIND_LAST_BARRIER)
def record_behind_the_last_barrier(history: History, rng: random.Random) -> bool:
    spot = _pick(history, rng)
    if spot is not None:
        history.output[spot[0]].append(_at(history, spot))
    return spot is not None


@mutant(Rule.START_NOT_BARRIER)
def record_before_the_first_barrier(history: History, rng: random.Random) -> bool:
    spot = _pick(history, rng)
    if spot is not None:
        history.output[spot[0]].insert(0, _at(history, spot))
    return spot is not None


@mutant(Rule.DIFFERENT)
def half_visible_update_sent_whole(history: History, rng: random.Random) -> bool:
    def half_visible(item: Item) -> bool:
        return item.source is not None and item.source.op is Op.UPDATE and _change(item).op is not Op.UPDATE

    spot = _pick(history, rng, half_visible)
    if spot is None:
        return False
    item = _at(history, spot)
    assert item.source is not None
    both = Change(Op.UPDATE, _project(history, item.source.before), _project(history, item.source.after))
    history.output[spot[0]][spot[1]] = replace(item, change=both)
    return True


@mutant(Rule.LOST)
def update_without_visible_difference_left_out(history: History, rng: random.Random) -> bool:
    def no_difference(item: Item) -> bool:
        change = _change(item)
        return change.op is Op.UPDATE and repr(change.before) == repr(change.after)

    spot = _pick(history, rng, no_difference)
    if spot is not None:
        del history.output[spot[0]][spot[1]]
    return spot is not None


@mutant(Rule.EXTRA)
def hidden_row_sent(history: History, rng: random.Random) -> bool:
    """The snapshot read sends a row that the filter hides."""
    tables = dict(history.tables())
    candidates = []
    for number, items in enumerate(history.output):
        for index in _barrier_indices(items)[1:]:
            barrier = items[index].barrier
            assert barrier is not None
            for key, row in tables[barrier.prev].items():
                newly = history.covers(barrier.curr, key) and not history.covers(barrier.prev, key)
                quiet = not any(item.key == key for item in items[: index + 1])
                if newly and quiet and history.home(key) == number and history.show(row) is None:
                    candidates.append((items, index, key, row))
    if not candidates:
        return False
    items, index, key, row = rng.choice(candidates)
    items.insert(index, Item(key, Change(Op.INSERT, None, _project(history, row))))
    return True


def folds_to_the_law(history: History) -> bool:
    """Whether the output folds to { x in V(b) : pk(x) <= pos(b) } at each of its barriers."""
    tables = dict(history.tables())
    for items in history.output:
        table: dict[Key, Row] = {}
        for item in items:
            if item.barrier is None:
                fold(table, _key(item), _change(item))
                continue
            law = {
                key: shown
                for key, row in tables[item.barrier.curr].items()
                if history.output[history.home(key)] is items
                and history.covers(item.barrier.curr, key)
                and (shown := history.show(row)) is not None
            }
            if repr(sorted(table.items(), key=repr)) != repr(sorted(law.items(), key=repr)):
                return False
    return True
