"""Where a scan meets live changes: behind the last key, in front of the first, in ranges that became empty."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from state.progress import Completed, InProgress
from tests.kit.scene import Scene, ids_of, items, some, table

MakeScene = Callable[..., Scene]
ONE_VNODE = table()
"""Two vnodes, but the tests that use it fill one: the ids of vnode 0."""


def ids(number: int) -> list[int]:
    return some(ids_of(ONE_VNODE, 0), number)


def test_an_empty_table_completes_with_barriers_alone(scene: MakeScene) -> None:
    empty = scene()
    empty.step()
    assert empty.states == ["Completed", "Completed"]
    assert empty.finish().output_records == len(empty.barriers())


def test_an_empty_table_that_is_filled_once_complete(scene: MakeScene) -> None:
    empty = scene()
    empty.step()
    empty.up.put_all(items(range(20)))
    empty.step()
    assert len(empty.sent()) == 20
    empty.finish()


def test_one_row_is_read_once(scene: MakeScene) -> None:
    single = scene(items([7]))
    assert single.finish().snapshot_rows == 1
    assert [interval for interval in single.intervals()[0] if interval] == [[("INSERT", (7,))]]


def test_inserts_behind_the_last_key_while_the_last_slice_is_read(scene: MakeScene) -> None:
    rows = scene(items(ids(12)[:10]))
    rows.step(6)
    rows.up.put_all(items(ids(12)[10:]))  # belongs to the very interval in which the rest is read
    rows.step()
    assert rows.states == ["Completed", "Completed"]
    assert [key for _, key in rows.sent()] == [(id_,) for id_ in ids(12)[6:]]
    rows.finish()


def test_an_insert_when_the_position_is_the_last_key_and_the_end_was_not_seen(scene: MakeScene) -> None:
    """The forced read at a barrier finds nothing, while a live insert waits behind the position."""
    first, last, behind = ids(10), ids(11)[-1], ids(12)[-1]
    rows = scene(items([*first, last]))
    rows.step(10)
    assert rows.progress[0] == InProgress((first[-1],), 10)
    rows.up.delete(last)
    rows.up.put_all(items([behind]))
    rows.step()
    assert rows.states[0] == "Completed"
    assert ("INSERT", (behind,)) in rows.sent()
    rows.finish()


def test_an_insert_into_a_table_whose_rows_were_all_deleted_before_the_first_read(scene: MakeScene) -> None:
    rows = scene(items(ids(10)))
    rows.step(0)
    for id_ in ids(10):
        rows.up.delete(id_)
    rows.step(0)
    rows.up.put_all(items([ids(11)[-1]]))
    rows.step()
    assert rows.progress[0] == Completed(None, 0)
    assert rows.sent() == [("INSERT", (ids(11)[-1],))]
    rows.finish()


@pytest.mark.parametrize("folded", [False, True])
def test_inserts_into_a_vnode_that_had_no_row(scene: MakeScene, folded: bool) -> None:
    """Before, in and after the interval in which its empty range is read."""
    newcomers = some(ids_of(ONE_VNODE, 1), 3)
    rows = scene(items(ids(10)))
    if folded:
        rows.service.fold()
    rows.up.put_all(items(newcomers[:1]))
    rows.step(5)
    rows.up.put_all(items(newcomers[1:2]))
    rows.step(5)
    rows.up.put_all(items(newcomers[2:]))
    rows.finish(5)


@pytest.mark.parametrize("folded", [False, True])
def test_all_rows_of_a_range_are_deleted_before_the_scan_gets_there(scene: MakeScene, folded: bool) -> None:
    rows = scene(items(ids(30)))
    if folded:
        rows.service.fold()
    rows.step(5)
    for id_ in ids(30)[5:20]:
        rows.up.delete(id_)
    rows.step(5)
    report = rows.finish(5)
    assert report.live_keys == 15
    assert not {("INSERT", (id_,)) for id_ in ids(30)[10:20]} & {r for i in rows.intervals()[0] for r in i}


def test_the_rows_behind_the_position_are_all_deleted_until_nothing_is_left(scene: MakeScene) -> None:
    rows = scene(items(ids(30)))
    rows.step(5)
    for id_ in ids(30):
        rows.up.delete(id_)
    assert rows.finish(5).live_keys == 0


PLACES = {"behind": 2, "in the slice": 7, "ahead": 15}
"""Index of a key among 20, of which 5 were read before the interval and 10 are after it."""


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_key_is_deleted_and_inserted_again_in_one_epoch(scene: MakeScene, place: int) -> None:
    rows = scene(items(ids(20)))
    rows.step(5)
    key = ids(20)[place]
    rows.up.delete(key)
    rows.up.put_all(items([key], n=1))
    rows.step(5)
    live = [op for op, sent in rows.sent() if sent == (key,)]
    assert live == {2: ["DELETE", "INSERT"], 7: ["INSERT", "DELETE", "INSERT"], 15: []}[place]
    rows.finish(5)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_key_is_updated_a_thousand_times_in_one_epoch(scene: MakeScene, place: int) -> None:
    rows = scene(items(ids(20)))
    rows.step(5)
    key = ids(20)[place]
    for n in range(1, 1_001):
        rows.up.put_all(items([key], n))
    rows.step(5)
    live = [op for op, sent in rows.sent() if sent == (key,)]
    snapshot = ["INSERT"] if place == 7 else []
    assert live == ([] if place == 15 else snapshot + ["UPDATE"] * 1_000)
    rows.finish(5)


@pytest.mark.parametrize("low", [True, False], ids=["below all keys", "above all keys"])
def test_live_changes_only_on_one_side_of_all_keys(scene: MakeScene, low: bool) -> None:
    rows = scene(items(range(1_000, 1_030)))
    for number in range(8):
        id_ = 10 + number if low else 2_000 + number
        rows.up.put_all(items([id_, id_ + 100]))
        rows.up.put_all(items([id_], n=1))
        rows.up.delete(id_ + 100)
        rows.step(4)
    rows.finish(4)


def test_a_budget_of_one_row_gets_through_a_table_that_changes_at_every_barrier(scene: MakeScene) -> None:
    rows = scene(items(range(12)))
    for number in range(12):
        rows.up.put_all(items([number], n=number + 1))
        rows.up.put_all(items([100 + number]))
        rows.step(1)
    assert rows.finish(1).snapshot_rows >= 12


@pytest.mark.parametrize("rows_per_file", [1, 4, 100])
@pytest.mark.parametrize("exact_below", [0, 1_000], ids=["log rides along", "log counted"])
def test_slices_end_inside_files_of_the_base(scene: MakeScene, rows_per_file: int, exact_below: int) -> None:
    rows = scene(items(ids(30)))
    rows.service.exact_below = exact_below
    rows.service.fold(rows_per_file=rows_per_file)
    rows.up.put_all(items(ids(30)[::4], n=1))
    rows.up.put_all(items(ids(35)[30:]))
    rows.step(0)
    read = 0
    while rows.states[0] != "Completed":
        rows.step(3)
        assert rows.progress[0] is not None
        assert rows.progress[0].row_count > read
        read = rows.progress[0].row_count
    rows.finish()
