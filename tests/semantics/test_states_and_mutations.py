"""Progress that stands still, and what each mutation does."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.errors import Code
from schemas.job import JobDefinition
from schemas.records import Add, Drop, Mutation, Pause, Resume, Stop, Throttle
from tests.kit.scene import Scene, churn, ids_of, items, some, table

MakeScene = Callable[..., Scene]
FOUR = table(vnode_count=4)
HELD: list[tuple[Mutation, Mutation]] = [
    (Pause("copy"), Resume("copy")),
    (Pause(None), Resume(None)),
    (Throttle("copy", 0), Throttle("copy", None)),
]


def definition(name: str, output: str, **more: object) -> str:
    return JobDefinition.declare({"name": name, "output": output} | more, FOUR).to_json()


@pytest.mark.parametrize(("hold", "release"), HELD, ids=["paused", "all paused", "limit 0"])
def test_mixed_states_while_paused_with_live_changes_in_each_kind(
    scene: MakeScene, hold: Mutation, release: Mutation
) -> None:
    """Vnode 0 Completed, vnode 1 InProgress, the others NotStarted: each decides for itself what is visible."""
    keys = {vnode: some(ids_of(FOUR, vnode), 20) for vnode in range(4)}
    mixed = scene(items(id_ for ids in keys.values() for id_ in ids[4:16]), table=FOUR)
    mixed.step(12 + 5, hold)
    states = ["Completed", "InProgress", "NotStarted", "NotStarted"]
    assert mixed.states == states
    for number in range(3):
        for ids in keys.values():
            new_low, passed, ahead, new_high = (
                ids[number],
                ids[5 + number],
                ids[10 + number],
                ids[16 + number],
            )
            mixed.up.put_all(items([new_low, passed, ahead, new_high], n=number + 1))
            mixed.up.delete(new_low)
            mixed.up.delete(ahead)
        mixed.step(mutation=release if number == 2 else None)
        assert mixed.states == states
        flowing = [
            *[("INSERT", keys[0][number]), ("UPDATE", keys[0][5 + number]), ("UPDATE", keys[0][10 + number])],
            *[
                ("INSERT", keys[0][16 + number]),
                ("DELETE", keys[0][number]),
                ("DELETE", keys[0][10 + number]),
            ],
            *[("INSERT", keys[1][number]), ("UPDATE", keys[1][5 + number]), ("DELETE", keys[1][number])],
        ]
        assert sorted((op, key[0]) for op, key in mixed.sent()) == sorted(flowing)
    mixed.finish()


@pytest.mark.parametrize(("hold", "release"), HELD, ids=["paused", "all paused", "limit 0"])
def test_nothing_is_read_from_the_start_while_paused(
    scene: MakeScene, hold: Mutation, release: Mutation
) -> None:
    held = scene(table=FOUR, rate_limit=0)  # a limit in the definition holds until a mutation says else
    held.up.put_all(items(range(20)))
    held.step(mutation=hold)
    held.step(mutation=Throttle("copy", 0))
    held.up.put_all(items(range(10, 30), n=1))
    held.step()
    assert held.states == ["NotStarted"] * 4
    assert [barrier.progress for barrier in held.barriers()] == [()] * 4
    held.step(mutation=Throttle("copy", None))
    held.step(mutation=release)
    held.finish()


def test_a_limit_of_the_definition_gives_way_to_a_mutation(scene: MakeScene) -> None:
    held = scene(items(range(20)), table=FOUR, rate_limit=0)
    held.step(mutation=Throttle("copy", 5))
    assert held.states == ["NotStarted"] * 4
    held.finish()


def test_completed_vnodes_go_on_while_limited_to_nothing(scene: MakeScene) -> None:
    done = scene(items(range(20)), table=FOUR)
    done.step(mutation=Throttle("copy", 0))
    done.up.put_all(items(range(15, 25), n=1))
    done.step()
    assert len(done.sent()) == 10
    done.lawful()


def test_a_pause_and_a_resume_in_one_batch_cancel_out(scene: MakeScene) -> None:
    rows = scene(items(range(20)), table=FOUR)
    rows.up.barrier(Pause("copy"))
    rows.up.barrier(Resume("copy"))
    rows.service.read()
    rows.service.run(2)
    assert not rows.service.known[0].paused
    rows.finish()


def test_a_job_added_by_a_mutation_starts_with_that_barrier(scene: MakeScene) -> None:
    first = scene(items(range(20)), table=FOUR)
    first.step(4)
    first.up.put_all(items(range(15, 25), n=1))
    first.step(4, Add(definition("second", "out-2", filter="n = 1", columns=["v"])))
    start = first.up.barriers[-1]
    for number in range(3):
        churn(first.up, items(range(30), n=number % 2), 20, random.Random(number))
        first.step(4)
    first.finish()
    report = first.lawful("out-2", complete=True)
    assert report.start == start.curr


def test_a_job_added_in_the_middle_of_a_batch_starts_with_its_last_barrier(scene: MakeScene) -> None:
    first = scene(items(range(20)), table=FOUR)
    first.up.barrier(Add(definition("second", "out-2")))
    first.up.put_all(items(range(15, 25), n=1))
    last = first.up.barrier()
    first.service.read()
    first.service.run()
    first.finish()
    assert first.lawful("out-2", complete=True).start == last.curr


def test_a_dropped_output_ends_with_the_same_barrier_everywhere_and_the_name_is_free(
    scene: MakeScene,
) -> None:
    rows = scene(items(range(20)), table=FOUR, output_partitions=4)
    rows.step(8)
    rows.step(0, Drop("copy"))
    dropped_at = rows.up.barriers[-1].curr
    rows.up.put_all(items(range(30), n=1))
    rows.step(0, Add(definition("copy", "again")))
    assert {rows.barriers(partition)[-1].curr for partition in range(4)} == {dropped_at}
    rows.lawful()
    while not rows.service.is_complete():
        rows.step(3)
    rows.lawful("again", complete=True)


def test_a_job_dropped_and_added_again_in_one_batch_begins_anew(scene: MakeScene) -> None:
    rows = scene(items(range(20)), table=FOUR)
    rows.step(8)
    rows.up.barrier(Drop("copy"))
    rows.up.barrier(Add(definition("copy", "again")))
    rows.service.read()
    assert rows.service.run(4) == 1
    rows.lawful()
    while not rows.service.is_complete():
        rows.step(8)
    rows.lawful("again", complete=True)


@pytest.mark.parametrize(
    ("mutation", "code"),
    [
        (Add(definition("copy", "other")), Code.JOB_EXISTS),
        (Add(definition("other", "out")), Code.JOB_EXISTS),
        (Add(definition("other", "out.dead-letters")), Code.JOB_EXISTS),
        (Add("no definition"), Code.JOB_INVALID),
        (Add('{"name": "Bad Name", "output": "other"}'), Code.JOB_NAME_INVALID),
        (Drop("nobody"), Code.JOB_UNKNOWN),
        (Pause("nobody"), Code.JOB_UNKNOWN),
        (Resume("nobody"), Code.JOB_UNKNOWN),
        (Throttle("nobody", 1), Code.JOB_UNKNOWN),
    ],
)
def test_a_mutation_that_cannot_be_carried_out_changes_nothing(
    scene: MakeScene, mutation: Mutation, code: Code
) -> None:
    rows = scene(items(range(20)), table=FOUR)
    before = rows.service.known
    rows.step(4, mutation)
    assert [report.refused for report in rows.service.reports] == [code]
    assert [(job.definition, job.paused, job.rate_limit) for job in rows.service.known] == [
        (job.definition, job.paused, job.rate_limit) for job in before
    ]
    rows.finish()


def test_a_job_whose_partitions_the_lanes_do_not_divide_is_refused(scene: MakeScene) -> None:
    rows = scene(items(range(20)), table=FOUR, output_partitions=2, lanes=2)
    rows.step(4, Add(definition("odd", "odd", output_partitions=3)))
    assert [report.refused for report in rows.service.reports] == [Code.JOB_INVALID]
    rows.finish()
    assert list(rows.service.outputs) == ["out"]


def test_a_stop_ends_the_service_after_the_batch_that_holds_it(scene: MakeScene) -> None:
    rows = scene(items(range(20)), table=FOUR)
    stop = rows.up.barrier(Stop())
    rows.service.read()
    rows.up.barrier()
    rows.service.read()
    rows.service.max_records = 1
    assert rows.service.run(4) == 1
    assert rows.service.stopped
    assert rows.barriers()[-1].curr == stop.curr
    rows.lawful()


def test_two_jobs_of_one_table_stand_at_different_places(tmp_path: Path) -> None:
    both = Scene(tmp_path, items(range(40)), table=FOUR, lanes=2, output_partitions=2)
    both.step(3, Add(definition("narrow", "narrow", columns=["n"], filter="n >= 1", output_partitions=4)))
    for number in range(4):
        churn(both.up, items(range(50), n=number % 3), 30, random.Random(number))
        both.step(4, Pause("copy") if number == 1 else Resume("copy") if number == 3 else None)
        both.lawful()
        if number:
            both.lawful("narrow")
    both.finish(5)
    both.lawful("narrow", complete=True)


def test_upstream_mutations_do_not_reach_the_output(scene: MakeScene) -> None:
    rows = scene(items(range(5)), table=FOUR)
    rows.step(mutation=Pause(None))
    assert [barrier.mutation for barrier in rows.barriers()] == [None, None]
