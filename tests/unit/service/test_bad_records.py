"""Invalid records: parked where that is asked for, left out where they are named, else the end of the run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.errors import Code, InputError
from schemas.job import JobDefinition
from schemas.records import Barrier, BarrierKind
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.chunks import TransactionSnapshot
from state.values.plan import BatchPlan, JobPlan, JobState, Parked
from state.values.reading import Reading, TableRead
from streaming.lane.faults import Fault
from streaming.protocol.bad_records import MOST_PARKED, BadRecords, without_parked
from tests.kit.tables import table

TABLE = table(vnode_count=4)


def plan(*jobs: str) -> BatchPlan:
    end = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (9,))
    definitions = [JobDefinition.declare({"name": name, "output": f"{name}-out"}, TABLE) for name in jobs]
    states = tuple(JobPlan(JobState(definition, 0)) for definition in definitions)
    return BatchPlan(None, (end,), (0,), ReplicaVersion(0, 0, 0), 2, states, skipped=((0, 1),))


def fault(offset: int, code: Code = Code.EMPTY_RECORD) -> Fault:
    return Fault(0, offset, code, "this", "that")


def test_with_a_job_every_record_is_parked_with_the_lane_that_found_it_named_ones_too() -> None:
    policy = BadRecords("up", frozenset({(0, 7)}), parks=True)
    after = policy.leave_out(plan("a", "b"), [(fault(7), 1), (fault(3, Code.PK_NULL), 0)])
    assert after.parked == (Parked(0, 3, Code.PK_NULL, 0), Parked(0, 7, Code.EMPTY_RECORD, 1))
    assert after.skipped == ((0, 1), (0, 3), (0, 7))
    more = policy.leave_out(after, [(fault(8), 0)])
    assert (len(more.parked), len(more.skipped)) == (3, 4)
    assert without_parked(more) == plan("a", "b")


def test_a_record_whose_change_is_too_long_for_an_output_is_parked_as_others_are() -> None:
    long = replace(fault(3, Code.RECORD_TOO_LARGE), output="a-out")
    after = BadRecords("up", parks=True).leave_out(plan("a", "b"), [(long, 1)])
    assert (after.parked, after.skipped) == ((Parked(0, 3, Code.RECORD_TOO_LARGE, 1),), ((0, 1), (0, 3)))
    with pytest.raises(InputError, match="next: raise what a-out takes; or leave this record out with"):
        BadRecords("up").leave_out(plan("a", "b"), [(long, 1)])


def test_without_a_job_a_record_is_parked_with_the_table() -> None:
    after = BadRecords("up", parks=True).leave_out(plan(), [(fault(3), 1)])
    assert after.parked == (Parked(0, 3, Code.EMPTY_RECORD, 1),)
    assert after.parks_early
    assert not BadRecords("up", parks=True).leave_out(plan("a"), [(fault(3), 1)]).parks_early


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (plan("a"), [(fault(3, Code.RECORD_TOO_LARGE), 0)]),
        (plan("a"), [(fault(offset + 3), 0) for offset in range(MOST_PARKED + 1)]),
    ],
    ids=["too large", "too many"],
)
def test_what_can_not_be_parked_stops_it_unless_it_is_named(
    batch: BatchPlan, found: list[tuple[Fault, int]]
) -> None:
    with pytest.raises(InputError, match="it can't be parked") as caught:
        BadRecords("up", parks=True).leave_out(batch, found)
    assert caught.value.where == "up-0@3"
    named = frozenset((each.partition, each.offset) for each, _ in found)
    after = BadRecords("up", named, parks=True).leave_out(batch, found)
    assert after.parked == ()
    assert set(after.skipped) == named | {(0, 1)}


def test_without_the_policy_the_first_that_is_not_named_stops_it_behind_those_that_are() -> None:
    policy = BadRecords("up", frozenset({(0, 7)}))
    found = [(fault(9), 0), (fault(5), 1), (fault(7), 0)]
    after = policy.leave_out(plan("a"), found)
    assert after.skipped == ((0, 1), (0, 7))
    with pytest.raises(InputError, match=r"leave this record out with --skip-record 0@5") as caught:
        policy.leave_out(after, found[:2])
    assert caught.value.where == "up-0@5"
    assert "parked" not in str(caught.value)


def test_a_record_that_came_to_every_lane_is_parked_by_the_first_of_them() -> None:
    found = [(fault(7, Code.SCHEMA_UNKNOWN), lane) for lane in range(3)]
    after = BadRecords("up", parks=True).leave_out(plan("a"), found)
    assert after.parked == (Parked(0, 7, Code.SCHEMA_UNKNOWN, 0),)
    assert after.skipped == ((0, 1), (0, 7))


def test_an_event_that_waited_for_its_chunk_is_decided_about_only_now() -> None:
    """For jobs that read the topic, records before the batch were left out by a batch of their own."""
    found = [(fault(3, Code.TOAST_UNAVAILABLE), 1)]
    early = replace(plan("a"), first_offsets=(5,))
    read = TableRead.begin(TransactionSnapshot(1, 1))
    waited = replace(early, reading=Reading(read, (), 0))
    assert BadRecords("up", parks=True).leave_out(early, found).parked == ()
    assert BadRecords("up", parks=True).leave_out(waited, found).parked == (
        Parked(0, 3, Code.TOAST_UNAVAILABLE, 1),
    )
    with pytest.raises(InputError, match=r"leave this record out with --skip-record 0@3"):
        BadRecords("up").leave_out(waited, found)
