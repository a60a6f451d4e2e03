from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from schemas.errors import Code, Fenced
from schemas.records import Barrier, BarrierKind
from state.journal import Journal, is_superseded
from state.maintenance.cleaning import clean_table
from state.retention import StateRetention
from state.storage import Storage
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from tests.kit.tables import table

pytestmark = pytest.mark.any_storage

TABLE = table()


def plan(number: int, lanes: int = 2) -> BatchPlan:
    barrier = Barrier(number << 16, (number - 1) << 16, BarrierKind.CHECKPOINT, 1, 0)
    return BatchPlan(None, (AlignedBarrier(barrier, (number,)),), (0,), ReplicaVersion(0, 0, 0), lanes)


def owned(storage: Storage, owner: str) -> Journal:
    journal = Journal(storage, TABLE)
    journal.take_over(owner, "{}")
    return journal


def test_a_new_state_has_no_owner_and_no_plan(storage: Storage) -> None:
    journal = Journal(storage, TABLE)
    assert journal.current is None
    assert journal.take_over("first", "{}") is None


def test_the_last_plan_is_the_one_that_counts(storage: Storage) -> None:
    journal = owned(storage, "first")
    journal.write_plan(plan(1))
    journal.write_plan(plan(2))
    entry = Journal(storage, TABLE).current
    assert entry is not None
    assert (entry.owner, entry.plan) == ("first", plan(2))


def test_a_successor_learns_whose_lanes_to_fence_and_which_plan_may_be_half_done(storage: Storage) -> None:
    owned(storage, "first").write_plan(plan(1, lanes=4))
    former = Journal(storage, TABLE).take_over("second", "{}")
    assert former is not None
    assert (former.owner, former.lanes, former.plan) == ("first", 4, plan(1, lanes=4))
    entry = Journal(storage, TABLE).current
    assert entry is not None
    assert (entry.owner, entry.lanes, entry.plan) == ("second", 4, plan(1, lanes=4))


def lanes_of(storage: Storage) -> int:
    entry = Journal(storage, TABLE).current
    assert entry is not None
    return entry.lanes


def test_the_lanes_of_the_open_plan_and_of_the_one_before_are_fenced(storage: Storage) -> None:
    journal = owned(storage, "first")
    for number, lanes, in_use in ((1, 2, 2), (2, 8, 8), (3, 3, 8), (3, 3, 8), (4, 1, 3), (5, 1, 1)):
        journal.write_plan(plan(number, lanes))
        assert lanes_of(storage) == in_use, number


def test_a_successor_that_dies_before_its_fence_leaves_all_lanes_to_be_fenced(storage: Storage) -> None:
    first = owned(storage, "first")
    first.write_plan(plan(1, lanes=8))
    first.write_plan(plan(2, lanes=2))
    owned(storage, "second")
    third = owned(storage, "third")
    assert lanes_of(storage) == 8
    third.write_plan(plan(3, lanes=2))
    assert lanes_of(storage) == 2


def test_a_former_owner_can_write_no_plan_and_learns_its_successor(storage: Storage) -> None:
    first = owned(storage, "first")
    second = owned(storage, "second")
    with pytest.raises(Fenced, match="second") as caught:
        first.write_plan(plan(1))
    assert (caught.value.code, caught.value.exit_status) == (Code.FENCED, 3)
    second.write_plan(plan(1))


def test_a_former_owner_stays_one_once_it_is_known(storage: Storage) -> None:
    first = owned(storage, "first")
    owned(storage, "second")
    assert "second" in first.fenced().found
    assert first.is_superseded


def test_an_owner_that_goes_on_meanwhile_is_taken_over_with_its_newest_plan(storage: Storage) -> None:
    first = owned(storage, "first")
    second = Journal(storage, TABLE)
    first.write_plan(plan(1))
    former = second.take_over("second", "{}")
    assert former is not None
    assert (former.owner, former.plan) == ("first", plan(1))
    assert second.current is not None
    assert second.current.plan == plan(1)
    with pytest.raises(Fenced, match="second"):
        first.write_plan(plan(2))


def test_two_that_take_over_at_one_moment_do_not_both_get_it(storage: Storage) -> None:
    one, other = Journal(storage, TABLE), Journal(storage, TABLE)
    one.take_over("one", "{}")
    with pytest.raises(Fenced):
        other.take_over("other", "{}")


def test_a_lane_sees_that_the_journal_moved_on(storage: Storage) -> None:
    journal = owned(storage, "first")
    journal.write_plan(plan(1))
    assert not is_superseded(storage, journal.version)
    owned(storage, "second")
    assert is_superseded(storage, journal.version)


def paused_for_long(storage: Storage, first: Journal) -> None:
    """A successor has worked on until even the commits in front of a checkpoint are gone."""
    second = owned(storage, "second")
    for number in range(1, 12):
        second.write_plan(plan(number))
    log = Path(storage.root, "journal", "_delta_log")
    for file in log.iterdir():
        os.utime(file, (0, 0))
    assert clean_table(storage, "journal").log
    assert not (log / f"{first.version + 1:020d}.json").exists()


def test_an_owner_paused_for_longer_than_the_log_is_kept_sees_that_it_is_superseded(folder: Storage) -> None:
    often = dataclasses.replace(folder, retention=StateRetention(checkpoint_commits=5))
    first = owned(often, "first")
    paused_for_long(often, first)
    assert first.is_superseded
    with pytest.raises(Fenced, match="second"):
        first.write_plan(plan(1))
    assert first.is_superseded, "once seen, it stays so"


def test_an_owner_whose_own_commit_is_the_newest_is_not_superseded_however_old_it_is(
    folder: Storage,
) -> None:
    often = dataclasses.replace(folder, retention=StateRetention(checkpoint_commits=5))
    first = owned(often, "first")
    paused_for_long(often, first)
    heir = Journal(often, TABLE)
    assert not heir.is_superseded


def test_a_journal_that_is_gone_has_no_other_owner(folder: Storage) -> None:
    journal = owned(folder, "first")
    shutil.rmtree(folder.root)
    assert not journal.is_superseded


def test_a_plan_that_was_cleaned_away_is_not_found(folder: Storage) -> None:
    often = dataclasses.replace(folder, retention=StateRetention(checkpoint_commits=5))
    paused_for_long(often, owned(often, "first"))
    journal = Journal(often, TABLE)
    assert journal.plan_with(11 << 16) == plan(11)
    assert journal.plan_with(1) is None


def test_the_journal_stays_one_row_wide(storage: Storage) -> None:
    journal = owned(storage, "first")
    for number in range(1, 6):
        journal.write_plan(plan(number))
    assert len(journal._ledger.files()) == 1


class _LateToSee:
    """A Delta table whose new version is known only once `gate` is open."""

    def __init__(self, table: Any, gate: threading.Event) -> None:
        self._table, self._gate = table, gate
        self.committed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def update_incremental(self) -> None:
        self.committed.set()
        assert self._gate.wait(30)
        self._table.update_incremental()


def test_a_commit_of_its_own_under_way_is_no_successors(storage: Storage) -> None:
    """The injector's thread asks while the batches' writes a plan."""
    journal, gate = owned(storage, "first"), threading.Event()
    late = _LateToSee(journal._ledger._table, gate)
    journal._ledger._table = cast("Any", late)
    with ThreadPoolExecutor(2) as threads:
        written = threads.submit(journal.write_plan, plan(1))
        assert late.committed.wait(30)
        asked = threads.submit(lambda: journal.is_superseded)
        gate.set()
        written.result(30)
        assert asked.result(30) is False
