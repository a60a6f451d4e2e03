"""Folds in the middle of a backfill, and outputs as upstreams."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.job import JobDefinition
from tests.kit.pure import PureService
from tests.kit.scene import Scene, churn, items, table

MakeScene = Callable[..., Scene]
SMALL = table(vnode_count=4)


@pytest.mark.parametrize("exact_below", [0, 1_000], ids=["log rides along", "log counted"])
def test_the_replica_is_folded_between_slices(scene: MakeScene, exact_below: int) -> None:
    rows = scene(items(range(60)), table=SMALL)
    rows.service.exact_below = exact_below
    for number in range(8):
        churn(rows.up, items(range(80), n=number), 20, random.Random(number))
        rows.step(7)
        if number % 3 == 1:
            rows.service.fold(rows_per_file=5)
    rows.finish(7)


def test_a_fold_that_ends_behind_where_the_service_stands(scene: MakeScene) -> None:
    """It runs beside the batches: when it is noticed, the log holds newer changes of folded rows."""
    rows = scene(items(range(60)), table=SMALL)
    for number in range(8):
        churn(rows.up, items(range(80), n=number), 20, random.Random(number))
        rows.step(4)
        if number >= 3:
            rows.service.fold(rows.up.barriers[-3].curr, rows_per_file=5)
    rows.finish(4)


def test_a_fold_of_a_vnode_that_lost_all_its_rows(scene: MakeScene) -> None:
    rows = scene(items(range(40)), table=SMALL)
    rows.service.fold()
    rows.step(0)
    for id_ in range(40):
        if rows.service.vnode((id_,)) == 2:
            rows.up.delete(id_)
    rows.step(3)
    rows.service.fold()
    rows.up.put_all(items(range(40, 80)))
    rows.finish(6)


def test_an_output_is_the_upstream_of_a_second_service_while_it_is_being_filled(
    scene: MakeScene, tmp_path: Path
) -> None:
    first = scene(items(range(60)), table=SMALL, output_partitions=2, columns=["v", "id"], filter="n < 3")
    narrow = table({"v": "string", "id": "bigint"}, vnode_count=6)
    job = JobDefinition.declare({"name": "next", "output": "last", "filter": "v IS NOT NULL"}, narrow)
    first.step(0)  # the topic is there once the job opens
    second = PureService(narrow, first.service.outputs["out"], tmp_path / "second", [job], lanes=2)
    for number in range(10):
        changed = [(id_, number % 4, None if id_ % 5 else "x") for id_ in range(80)]
        churn(first.up, changed, 25, random.Random(number))
        first.step(8)
        second.read()
        second.run(5)
    first.finish()
    second.read()
    second.run()
    report = second.judged("last", complete=True)
    assert report.clean, report.findings[:3]
    assert report.behind == 0
