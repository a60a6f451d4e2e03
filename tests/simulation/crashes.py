"""Every crash of one job: not drawn from seeds, but all of them, one after the other.

A crash leaves what is durable (`Durable`), so all that comes after it is decided by that alone: the history of a job is
played once, what would survive is kept before each step, and a new instance goes on from each. Its recovery is a
history with steps of its own, so crashes in recoveries, pairs and more, are found in the same way.

Two crashes that leave the same (`tests.simulation.state_digest`) are one crash. That makes the number of different
crashes finite: once a round of them leaves nothing new, every history with any number of crashes was judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from schemas.records import Add, Mutation, Resume, Throttle
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.fault_policies import NoFaults, Order
from tests.simulation.instance import Instance
from tests.simulation.jobs import in_form, job_of, table_of
from tests.simulation.judge import violations
from tests.simulation.scheduler import Strand
from tests.simulation.state_digest import state_digest
from tests.simulation.world import Durable, Setting, World

VNODES = 4
ORDERS = [
    Order(last_lane_first, markers_first)
    for last_lane_first in (False, True)
    for markers_first in (False, True)
]

Path = tuple[int, ...]
"""The step that each crash comes before, counted from the start of the instance that dies of it."""


@cache
def job_of_epochs(count: int) -> Setting:
    """A job of two lanes that reads one row a batch; live changes before, at and behind its positions; maintenance."""
    table = table_of(VNODES)
    job = job_of("copy", "copy", VNODES, rate_limit=1)
    upstream = Upstream(table, partitions=2)
    for epoch in range(count - 2):
        for key in range(8) if epoch == 0 else (epoch % 4, 4 + epoch % 3, 10 + epoch):
            upstream.put((key, epoch))
        if epoch % 3 == 2:
            upstream.delete(epoch % 4)
        upstream.barrier(Add(job.to_json()) if epoch == 0 else None)
    for last in (Throttle("copy", None), None):
        upstream.barrier(last)
    return Setting(table, Changelog(upstream), (), {"copy": job}, lanes=(2,), compactions=True, closing=2)


@cache
def jobs_that_begin_or_end() -> Setting:
    """A job that begins now, one that ends once it is complete, and one that is created paused; of two lanes."""
    table = table_of(VNODES)
    now = replace(in_form(job_of("now", "now", VNODES, rate_limit=1), "upsert"), from_now=True)
    ends = replace(job_of("ends", "ends", VNODES, rate_limit=4), until_complete=True)
    held = replace(job_of("held", "held", VNODES, rate_limit=None), paused=True)
    upstream = Upstream(table, partitions=2)
    mutations: dict[int, Mutation] = {0: Add(ends.to_json()), 1: Add(now.to_json()), 4: Resume(None)}
    for epoch in range(6):
        for key in range(8) if epoch == 0 else (epoch % 4, 4 + epoch % 3, 10 + epoch):
            upstream.put((key, epoch))
        if epoch % 3 == 2:
            upstream.delete(epoch % 4)
        upstream.barrier(mutations.get(epoch))
    closing: tuple[Mutation | None, ...] = (Throttle("ends", None), None, None)
    for last in closing:
        upstream.barrier(last)
    jobs = {job.output: job for job in (now, ends, held)}
    changelog = Changelog(upstream)
    return Setting(table, changelog, (held,), jobs, lanes=(2,), compactions=False, closing=len(closing))


Look = Callable[[int, World], None]
"""Called with each step before it is taken."""


def twelve_epochs() -> Setting:
    """The job that crashes."""
    return job_of_epochs(12)


def unseen(step: int, world: World) -> None:
    """Nobody looks on."""


class WithObserver(NoFaults):
    """No faults, and an observer is called before each step. What maintenance does follows from how far things are."""

    def __init__(self, order: Order, world: World, look: Look = unseen) -> None:
        super().__init__(order)
        self._world, self._look = world, look
        self._steps = 0

    def interruption(self, strand: Strand) -> str:
        self._look(self._steps, self._world)
        self._steps += 1
        return "nothing"

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        choices = (harmless, *others) if of == "maintenance" else (harmless,)
        return choices[self._world.durable.arrivals.counts[0] % len(choices)]


def play_on(
    setting: Setting,
    order: Order,
    left: Durable,
    look: Look = unseen,
    instance_type: type[Instance] = Instance,
) -> tuple[World, list[str]]:
    """From what a crash left to the end, without another one; what is wrong then."""
    world = World(setting, NoFaults(), left.copy(), instance_type)
    world.scheduler.policy = WithObserver(order, world, look)
    world.start()
    try:
        world.settle()
        return world, violations(world)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this history's
        return world, [f"{type(error).__name__}: {error}"]
    finally:
        world.scheduler.end()


def left_before_each_step(
    setting: Setting, order: Order, instance_type: type[Instance] = Instance, start: Durable | None = None
) -> tuple[list[Durable], list[str]]:
    """The durable data that a crash before each step would leave, and the faults at the end without one."""
    left: list[Durable] = []

    def look(step: int, world: World) -> None:
        left.append(world.durable.copy())

    _, wrong = play_on(setting, order, start or Durable.beginning(setting), look, instance_type)
    return left, wrong


class Exploration:
    """`steps` counts the crashes that were considered, `distinct` those that leave something new, by round.

    `named` is what the command that shows one says of the setting.
    """

    def __init__(self, setting: Setting, order: Order, named: str = "") -> None:
        self.setting, self.order, self._named = setting, order, named
        self.steps = 0
        self.distinct: list[int] = []
        self.broken: list[str] = []
        self._known: set[bytes] = set()

    def run(self, most_crashes: int | None = None) -> None:
        """All histories with so many crashes; None: with any number."""
        reached: list[tuple[Path, Durable]] = [((), Durable.beginning(self.setting))]
        while reached:
            self.distinct.append(len(reached))
            goes_on = most_crashes is None or len(self.distinct) <= most_crashes
            reached = [further for path, left in reached for further in self._follow(path, left, goes_on)]

    def _follow(self, path: Path, left: Durable, goes_on: bool) -> list[tuple[Path, Durable]]:
        """Judge the history after a crash; what further crashes in it would leave."""
        further: list[tuple[Path, Durable]] = []

        def look(step: int, world: World) -> None:
            self.steps += 1
            same = state_digest(world.durable)
            if same not in self._known:
                self._known.add(same)
                further.append(((*path, step), world.durable.copy()))

        _, wrong = play_on(self.setting, self.order, left, look if goes_on else unseen)
        if wrong:
            crashes = " ".join(map(str, path))
            command = f'make simulate CRASHES="{crashes}" ORDER={ORDERS.index(self.order)}{self._named}'
            self.broken.append(f"{command}\n  {wrong[0]}")
        return further


def replay(setting: Setting, order: Order, path: Path) -> tuple[list[str], list[str]]:
    """The trace of a history with these crashes, and what is wrong at its end."""
    left, trace = Durable.beginning(setting), list[str]()
    for step in path:
        before, left = _until(setting, order, left, step)
        trace += [*before, "crash"]
    world, wrong = play_on(setting, order, left)
    return trace + world.scheduler.trace, wrong


def _until(setting: Setting, order: Order, left: Durable, end: int) -> tuple[list[str], Durable]:
    kept: list[tuple[list[str], Durable]] = []

    def look(step: int, world: World) -> None:
        if step == end:
            kept.append((list(world.scheduler.trace), world.durable.copy()))

    play_on(setting, order, left, look)
    return kept[0]
