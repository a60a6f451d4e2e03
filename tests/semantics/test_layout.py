"""Numbers of vnodes, output partitions, upstream partitions and lanes, and a change of lanes on the way."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from state.plan import BatchPlan
from tests.kit.pure import PureService
from tests.kit.scene import Scene, churn, items, table
from tests.kit.upstream import MemoryTopic

MakeScene = Callable[..., Scene]


def live(scene: Scene, steps: int, rows: int) -> None:
    for number in range(steps):
        churn(scene.up, items(range(120), n=number), 40, random.Random(number))
        scene.step(rows)


@pytest.mark.parametrize("output_partitions", [1, 8])
@pytest.mark.parametrize("vnode_count", [2, 64, 1024])
def test_any_number_of_vnodes_and_output_partitions(
    scene: MakeScene, vnode_count: int, output_partitions: int
) -> None:
    count = min(output_partitions, vnode_count)
    rows = scene(items(range(100)), table=table(vnode_count=vnode_count), output_partitions=count)
    live(rows, 4, 20)
    assert len(rows.intervals()) == count
    rows.finish()


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("partitions", [1, 3])
def test_any_number_of_lanes_and_upstream_partitions(scene: MakeScene, lanes: int, partitions: int) -> None:
    rows = scene(
        items(range(100)),
        table=table(vnode_count=10),
        output_partitions=4,
        lanes=lanes,
        partitions=partitions,
    )
    live(rows, 4, 20)
    rows.finish()


def test_the_number_of_lanes_changes_on_the_way_with_vnodes_in_every_state(scene: MakeScene) -> None:
    rows = scene(items(range(100)), table=table(vnode_count=12), output_partitions=4, lanes=4)
    rows.step(30)
    for lanes in (1, 2, 4, 2):
        rows.service.lanes = lanes
        live(rows, 2, 0)
        assert {"Completed", "InProgress", "NotStarted"} <= set(rows.states) or lanes != 1
        live(rows, 1, 12)
    rows.finish(12)


def test_every_lane_has_part_in_a_budget_that_pays_for_all(scene: MakeScene) -> None:
    rows = scene(items(range(100)), table=table(vnode_count=16), output_partitions=4)
    rows.step(40)
    read = [sum(told.row_count for told in rows.barriers(number)[-1].progress) for number in range(4)]
    assert read == [10, 10, 10, 10]


def test_the_same_plan_sends_the_same_bytes_in_whatever_order_the_rows_come(scene: MakeScene) -> None:
    rows = scene(items(range(60)), table=table(vnode_count=8), output_partitions=4, lanes=2)
    churn(rows.up, items(range(80), n=1), 60, random.Random(0))
    rows.up.barrier()
    churn(rows.up, items(range(80), n=2), 60, random.Random(1))
    rows.up.barrier()
    rows.service.read()
    plan = rows.service._plan(20)
    sent = [_sent_alone(rows.service, plan) for _ in range(3)]
    assert sent[0] == sent[1] == sent[2]
    assert sum(len(entries) for entries in sent[0]) >= 60


def _sent_alone(service: PureService, plan: BatchPlan) -> list[list[object]]:
    topic = MemoryTopic.empty(4)
    service.send(plan, {"out": topic})
    return [list(entries) for entries in topic.partitions]
