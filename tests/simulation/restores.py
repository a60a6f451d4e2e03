"""Every older state of one job, restored at later moments.

The state folder is copied before each step. Later all instances end, a copy is put in its place, and the service is
started again, perhaps with another number of lanes. The outputs are as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

from schemas.records import Add, Drop, Mutation, Pause, Resume, Throttle
from tests.kit.upstream import Upstream
from tests.simulation.cases import Case
from tests.simulation.changelog import Changelog
from tests.simulation.crashes import VNODES, left_before_each_step, play_on
from tests.simulation.fault_policies import Order
from tests.simulation.instance import Instance
from tests.simulation.jobs import job_of, table_of
from tests.simulation.storage import Files
from tests.simulation.world import Durable, Setting, may_restore

EVERY = 9
"""Steps from one restore to the next: more than the commits of a batch, and no divisor of its steps."""


@cache
def jobs_that_come_and_go() -> Setting:
    """A job of the file; another that is added, limited, paused and dropped; one more under its name."""
    table = table_of(VNODES)
    jobs = {
        "copy": job_of("copy", "copy", VNODES, rate_limit=1),
        "late": job_of("late", "late", VNODES, rate_limit=1, condition="n >= 1"),
        "later": job_of("late", "later", VNODES, rate_limit=2),
    }
    upstream = Upstream(table, partitions=2)
    mutations: dict[int, Mutation] = {
        2: Add(jobs["late"].to_json()),
        4: Throttle("copy", 2),
        5: Pause("late"),
        6: Drop("late"),
        7: Add(jobs["later"].to_json()),
        8: Resume(None),
    }
    for epoch in range(10):
        for key in range(8) if epoch == 0 else (epoch % 4, 4 + epoch % 3, 10 + epoch):
            upstream.put((key, epoch))
        if epoch % 3 == 2:
            upstream.delete(epoch % 4)
        upstream.barrier(mutations.get(epoch))
    # A job whose first barrier was lost with the state begins anew with one of these, at the limit of the file.
    closing: list[Mutation | None] = [None, None, Throttle("copy", None), Throttle("late", None), None, None]
    for last in closing:
        upstream.barrier(last)
    changelog = Changelog(upstream)
    return Setting(
        table, changelog, (jobs["copy"],), jobs, lanes=(2, 1), compactions=True, closing=len(closing)
    )


def restores(
    setting: Setting, order: Order, instance_type: type[Instance] = Instance, every: int = EVERY
) -> Iterator[Case]:
    """When which state is restored."""
    left, wrong = left_before_each_step(setting, order, instance_type)
    yield Case("none", lambda: wrong)
    for moment in range(every, len(left), every):
        for older, files in _copies(setting, left[:moment]):
            where = f"before step {moment} the state of step {older}"
            yield Case(where, _restored(setting, order, left[moment], files, instance_type))


def mixtures(
    setting: Setting, order: Order, instance_type: type[Instance] = Instance, every: int = EVERY
) -> Iterator[Case]:
    """States one of whose tables is older than the others: a copy of a running service, or power lost without syncs."""
    left, _ = left_before_each_step(setting, order, instance_type)
    for moment in range(every, len(left), every):
        tables = left[moment].files.tables
        for path, lost in product(("journal", "progress", "replica/log"), (1, 2, 5)):
            files = left[moment].files.copy()
            if len(tables.get(path, ())) > lost:
                del files.tables[path][-lost:]
                files.is_mixed = True
                if files.has_plan() and may_restore(setting, files):
                    where = f"before step {moment} without {lost} commits of {path}"
                    yield Case(where, _restored(setting, order, left[moment], files, instance_type))


class _Rebuilds(Instance):
    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self.rebuilds = True


def rebuilds(setting: Setting, order: Order, every: int) -> Iterator[Case]:
    """When the state is lost as a whole."""
    left, _ = left_before_each_step(setting, order)
    for moment in range(every, len(left), every):
        yield Case(f"step {moment}", _restored(setting, order, left[moment], Files(), _Rebuilds))


def _restored(
    setting: Setting, order: Order, left: Durable, files: Files, instance_type: type[Instance]
) -> Callable[[], list[str]]:
    def play() -> list[str]:
        durable = left.copy()
        durable.files.restore(files)
        durable.restored = True
        return play_on(setting, order, durable, instance_type=instance_type)[1]

    return play


def _copies(setting: Setting, left: list[Durable]) -> Iterator[tuple[int, Files]]:
    """States that differ, with a plan at least: a new one is no older state."""
    known: set[tuple[int, ...]] = set()
    for step, durable in enumerate(left):
        tables = durable.files.tables
        versions = tuple(len(tables.get(path, ())) for path in sorted(tables))
        if len(tables) < 4 or not durable.files.has_plan() or versions in known:
            continue
        known.add(versions)
        if may_restore(setting, durable.files):
            yield step, durable.files
