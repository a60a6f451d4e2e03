from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Code
from schemas.job import JobDefinition
from schemas.kinds.lanes import rescale_incompatibility, share_of
from schemas.kinds.table_changes import AddColumn, IgnoreField, altered, changes_text
from schemas.records import (
    Add,
    Alter,
    Barrier,
    BarrierKind,
    Drop,
    Lanes,
    Mutation,
    Other,
    Pause,
    Resume,
    Stop,
    Throttle,
)
from schemas.table import declare
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan, JobPlan, JobState, Parked, Slice
from state.values.progress import Completed, Progress, is_complete
from streaming.core.jobs import StartPause, add_configured, ended_where_complete, jobs_after, reads_on
from tests.kit.tables import table

TABLE = table(vnode_count=4)
C, IGNORED = AddColumn("c", '"int"'), IgnoreField("d")
KEYED = declare({"name": "t", "columns": {"id": "int"}, "primary_key": ["id"], "distribution": "upstream"})


def definition(name: str) -> JobDefinition:
    return JobDefinition.declare({"name": name, "output": f"out-{name}", "rate_limit": 7}, TABLE)


def plan(*mutations: Mutation | None, jobs: tuple[str, ...] = ("a", "b")) -> BatchPlan:
    """A batch with one barrier for each mutation, the last with epoch `len(mutations) << 16`."""
    barriers = [
        AlignedBarrier(Barrier(n << 16, (n - 1) << 16, BarrierKind.CHECKPOINT, 1, 0, mutation), (n,))
        for n, mutation in enumerate(mutations, 1)
    ]
    states = tuple(JobPlan(JobState(definition(name), 0)) for name in jobs)
    return BatchPlan(None, tuple(barriers), (0,), ReplicaVersion(0, 0, 0), 1, states)


def test_lanes_take_effect_behind_the_batch_and_the_last_one_counts() -> None:
    outcome = jobs_after(plan(Lanes(2), Lanes(3), Lanes(4)), TABLE)
    assert outcome.lanes == 4
    assert [report.refused for report in outcome.reports] == [None, Code.RESCALE_REFUSED, None]
    assert jobs_after(plan(None), TABLE).lanes is None
    assert jobs_after(replace(plan(None), lanes_set=2), TABLE).lanes == 2


def alter(*changes: AddColumn | IgnoreField) -> Alter:
    return Alter(changes_text(changes))


def test_changes_of_the_table_are_for_the_next_batch_and_for_jobs_behind_them() -> None:
    wide = JobDefinition.declare(
        {"name": "wide", "output": "wide", "columns": ["id", "c"], "output_partitions": 1},
        altered(TABLE, [C]),
    )
    outcome = jobs_after(plan(Add(wide.to_json()), alter(C), alter(C, IGNORED), Add(wide.to_json())), TABLE)
    assert outcome.changes == (C, C, IGNORED)
    assert [report.refused for report in outcome.reports] == [Code.JOB_INVALID, None, None, None]
    assert outcome.reports[2].text == "alter: add 'c', ignore 'd'"
    assert [job.name for job in outcome.jobs] == ["a", "b", "wide"]


def test_changes_that_the_table_can_not_have_change_nothing() -> None:
    other = AddColumn("c", '"string"')
    outcome = jobs_after(plan(alter(C), alter(other), alter(IgnoreField("id"))), TABLE)
    assert outcome.changes == (C,)
    assert [report.refused for report in outcome.reports] == [None, Code.TABLE_INVALID, Code.TABLE_INVALID]


@pytest.mark.parametrize("count", [0, -1, 3, 5, 8])
def test_lanes_with_which_a_job_can_not_run_change_nothing(count: int) -> None:
    outcome = jobs_after(plan(Lanes(2), Lanes(count)), TABLE)
    assert outcome.lanes == 2
    assert outcome.reports[-1].refused is Code.RESCALE_REFUSED
    assert f"lanes {count}: " in outcome.reports[-1].text


def test_a_job_is_judged_by_the_lanes_that_the_mutation_before_it_has_set() -> None:
    odd = JobDefinition.declare({"name": "odd", "output": "odd", "output_partitions": 1}, TABLE)
    outcome = jobs_after(plan(Lanes(2), Add(odd.to_json()), Lanes(1), Add(odd.to_json()), Lanes(2)), TABLE)
    codes = [report.refused for report in outcome.reports]
    assert codes == [None, Code.JOB_INVALID, None, None, Code.RESCALE_REFUSED]
    assert outcome.lanes == 1


def coupled(*left: int | None, ends: int = 0) -> BatchPlan:
    """Without an exchange, of four partitions: so many parts are left, of which the batch reads some to their end."""
    jobs = [
        JobPlan(
            JobState(
                JobDefinition.declare({"name": f"j{n}", "output": f"o{n}"}, KEYED).with_partitions(4), 0
            ),
            tuple(Slice(part, None, None) for part in range(ends)),
            count,
        )
        for n, count in enumerate(left)
    ]
    ready = replace(plan(Lanes(2)), first_offsets=(0,) * 4, lanes=4, jobs=tuple(jobs))
    return BatchPlan.from_json(ready.to_json(), KEYED.with_partitions(4))


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (coupled(0), 2),
        (coupled(0, 0), 2),
        (coupled(2, ends=2), 2),
        (coupled(2, ends=1), None),
        (coupled(2), None),
        (coupled(0, 1), None),
        (coupled(None), None),
    ],
)
def test_a_no_shuffle_backfill_keeps_its_lanes_until_it_is_read_to_its_end(
    batch: BatchPlan, expected: int | None
) -> None:
    assert batch.jobs[0].state.definition.is_coupled
    outcome = jobs_after(batch, KEYED.with_partitions(4))
    assert outcome.lanes == expected


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_with_lanes_that_are_taken_every_partition_has_one_lane(
    vnodes: int, partitions: int, lanes: int, reads_topic: bool
) -> None:
    of_table = table(vnode_count=max(vnodes, 2))
    declared: dict[str, Any] = {"name": "a", "output": "a", "read": "topic" if reads_topic else "replica"}
    if not reads_topic:
        declared |= {"output_partitions": min(partitions, of_table.vnode_count)}
    job = JobDefinition.declare(declared, of_table).with_partitions(partitions)
    if rescale_incompatibility(lanes, [(job, False)], of_table, partitions) is None:
        written = [
            {job.partition_of(part) for part in share_of(lane, lanes, job.part_count)}
            for lane in range(lanes)
        ]
        assert all(written), "a lane has no partition"
        assert sum(map(len, written)) == job.output_partitions


def test_a_mutation_of_a_later_version_is_reported_and_the_others_go_on() -> None:
    outcome = jobs_after(plan(Other("Alter", "{}"), Other("a b", "{}"), Pause("a")), TABLE)
    assert [(report.text.split(":")[0], report.refused) for report in outcome.reports] == [
        ("Alter", Code.MUTATION_UNKNOWN),
        ("?", Code.MUTATION_UNKNOWN),
        ("pause a", None),
    ]
    assert outcome.jobs[0].paused


def test_jobs_of_a_batch_are_open_after_it() -> None:
    assert all(job.opened for job in jobs_after(plan(None), TABLE).jobs)


def test_mutations_of_several_barriers_take_effect_in_their_order() -> None:
    mutations: list[Mutation] = [
        Pause("a"),
        Throttle("b", 5),
        Resume(None),
        Throttle("b", None),
        Pause("b"),
        Drop("a"),
    ]
    outcome = jobs_after(plan(*mutations), TABLE)
    assert [(job.name, job.paused, job.rate_limit) for job in outcome.jobs] == [("b", True, None)]
    assert [report.epoch >> 16 for report in outcome.reports] == [1, 2, 3, 4, 5, 6]
    assert not any(report.refused for report in outcome.reports)


def test_an_added_job_starts_at_the_end_of_the_batch_with_the_limit_of_its_definition() -> None:
    outcome = jobs_after(plan(Add(definition("c").to_json()), None, None), TABLE)
    assert outcome.jobs[-1] == JobState(definition("c"), 3 << 16, rate_limit=7)


def test_a_job_that_is_declared_paused_is_created_so_by_a_request_and_by_the_file() -> None:
    paused = replace(definition("c"), paused=True)
    assert jobs_after(plan(Add(paused.to_json())), TABLE).jobs[-1].paused
    assert [job.paused for job in add_configured((), [paused, definition("d")], 9)] == [True, False]


def test_a_start_that_pauses_all_jobs_does_so_once_and_the_journal_keeps_it() -> None:
    pause, batch = StartPause(is_due=True), plan(Resume("a"), None)
    assert [job.paused for job in pause.configured([definition("c")])] == [True]
    first = tuple(job.state for job in batch.jobs)
    paused = pause.planned(first, batch.epoch)
    assert [job.paused for job in paused] == [True, True]
    pause.written(plan(None))  # of the instance before, whose batch was open
    assert pause.planned(first, batch.epoch) == paused
    written = BatchPlan.from_json(batch.with_jobs([JobPlan(job) for job in paused]).to_json(), TABLE)
    pause.written(written)
    after = jobs_after(written, TABLE).jobs
    assert [job.paused for job in after] == [False, True]
    assert pause.planned(after, batch.epoch + 1) == after
    # A job of the file that is still to come is created paused, whenever that is.
    assert [job.paused for job in pause.configured([definition("d")])] == [True]


def test_a_job_has_ended_once_it_is_complete_if_it_is_to_end_then() -> None:
    ends, goes_on = (
        JobState(replace(definition(name), until_complete=name == "ends"), 1) for name in ("ends", "on")
    )
    done: dict[int, Progress] = {part: Completed(None, 1) for part in range(4)}
    partly = {part: done[part] for part in range(3)}
    for progress, ended in ((partly, False), (done, True)):
        after = ended_where_complete((ends, goes_on), {"ends": progress, "on": progress})
        assert [job.ended for job in after] == [ended, False]
        assert JobState.from_dict(after[0].to_dict(), TABLE) == after[0]


def test_lanes_send_nothing_for_a_job_that_has_ended_and_letters_go_to_the_table_then() -> None:
    batch = plan(None, jobs=("a",))
    ended = batch.with_jobs([JobPlan(replace(job.state, ended=True)) for job in batch.jobs])
    assert (batch.sent_jobs, ended.sent_jobs) == (batch.jobs, ())
    parked = (Parked(0, 0, Code.CHANGE_MALFORMED, 0),)
    assert not replace(batch, parked=parked).parks_early
    assert replace(ended, parked=parked).parks_early


def test_a_job_that_begins_now_has_nothing_to_read_from_its_start_on() -> None:
    job = JobState(replace(definition("now"), from_now=True), 1)
    assert is_complete(job.first_progress, 4)
    assert all(state == Completed(None, 0) for state in job.first_progress.values())
    assert JobState(definition("copy"), 1).first_progress == {}


def test_a_stop_among_other_mutations_is_named_and_the_others_still_count() -> None:
    outcome = jobs_after(plan(Stop(), Pause("a")), TABLE)
    assert outcome.stop
    assert outcome.jobs[0].paused


def test_jobs_after_a_batch_follow_from_its_plan_alone() -> None:
    batch = plan(Pause("a"), Add(definition("c").to_json()), Drop("b"))
    again = BatchPlan.from_json(batch.to_json(), TABLE)
    assert jobs_after(again, TABLE) == jobs_after(batch, TABLE)


def test_a_configured_job_is_added_once_and_what_mutations_made_of_a_known_one_stays() -> None:
    known = jobs_after(plan(Throttle("a", 0)), TABLE).jobs
    jobs = add_configured(known, [definition("a"), definition("c")], 9)
    assert [(job.name, job.start, job.rate_limit) for job in jobs] == [
        ("a", 0, 0),
        ("b", 0, None),
        ("c", 9, 7),
    ]


@pytest.mark.parametrize(
    ("mutation", "code"),
    [
        (Add("no definition"), Code.JOB_INVALID),
        (Add('{"name": "Bad Name", "output": "other"}'), Code.JOB_NAME_INVALID),
        (Resume("nobody"), Code.JOB_UNKNOWN),
    ],
)
def test_a_mutation_that_can_not_be_carried_out_changes_nothing(mutation: Mutation, code: Code) -> None:
    outcome = jobs_after(plan(mutation), TABLE)
    assert outcome.jobs == jobs_after(plan(None), TABLE).jobs
    assert [report.refused for report in outcome.reports] == [code]


go_on = partial(reads_on, is_table_read=False, interval_records=1)
PART_READ, ALL_READ = {0: Completed(None, 1)}, {part: Completed(None, 1) for part in range(4)}


@pytest.mark.parametrize(
    ("state", "progress", "rows", "expected"),
    [
        pytest.param({}, PART_READ, 5, True, id="it has read, and there is more"),
        pytest.param({}, ALL_READ, 5, False, id="it has read to its end"),
        pytest.param({}, PART_READ, 0, False, id="it waits for something else"),
        pytest.param({"paused": True}, PART_READ, 5, False, id="it was paused in this batch"),
        pytest.param({"rate_limit": 100}, PART_READ, 5, False, id="its limit decides when it goes on"),
    ],
)
def test_when_a_job_would_read_on_at_once(
    state: dict[str, Any], progress: dict[int, Progress], rows: int, expected: bool
) -> None:
    job = JobState(definition("a"), 0, opened=True, **state)
    assert go_on([job], {"a": progress}, plan(None), {"a": rows}) is expected


def test_a_job_that_was_added_in_a_batch_reads_on_without_having_read_in_it() -> None:
    new = JobState(definition("new"), 1 << 16)
    assert go_on([new], {"new": {}}, plan(None), {})
    assert not go_on([new], {"new": {}}, plan(None, jobs=("a", "new")), {})
    assert not go_on([], {}, plan(None), {})


def test_while_the_table_is_read_a_barrier_is_of_use_behind_an_interval_that_released_nothing() -> None:
    new = JobState(definition("new"), 1 << 16)
    batch = plan(None, None, None)
    while_read = partial(reads_on, [new], {"new": {}}, batch, {}, is_table_read=True)
    assert batch.max_records == 3
    assert while_read(interval_records=2)
    assert not while_read(interval_records=3)
