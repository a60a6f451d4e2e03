"""Every hand-over of one job: a rival takes over before each step, and the one before goes on at each later moment.

An instance is stopped before one of its steps (a long pause, a network that is cut). Another takes over and takes some
steps. Then the first wakes and does all that it still can, for it has noticed nothing; then the second goes on. Both
moments are enumerated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count

from tests.simulation.crashes import WithObserver, job_of_epochs, play_on
from tests.simulation.fault_policies import NoFaults, Order
from tests.simulation.instance import Instance
from tests.simulation.judge import violations
from tests.simulation.world import Durable, Setting, World


def five_epochs() -> Setting:
    """The job that is handed over."""
    return job_of_epochs(5)


def every_stop(
    order: Order,
    setting_of: Callable[[], Setting] = five_epochs,
    instance_type: type[Instance] = Instance,
) -> range:
    """All steps that an instance takes without faults."""
    return range(1, len(_without_faults(order, setting_of, instance_type)) + 1)


def one_batch(order: Order) -> range:
    """Its steps from one plan to the next, in the middle of the job: slices are read, changes sent."""
    trace = _without_faults(order, five_epochs, Instance)
    plans = [number for number, step in enumerate(trace) if "commit journal" in step]
    return range(plans[3] + 1, plans[4] + 2)


def _without_faults(
    order: Order, setting_of: Callable[[], Setting], instance_type: type[Instance]
) -> list[str]:
    setting = setting_of()
    world, _ = play_on(setting, order, Durable.beginning(setting), instance_type=instance_type)
    return [step for step in world.scheduler.trace if step.startswith("service-1.")]


def hand_overs(
    order: Order,
    stops: Iterable[int],
    instance_type: type[Instance] = Instance,
    setting_of: Callable[[], Setting] = five_epochs,
    wakes: int = 1,
) -> Iterator[tuple[int, int, list[str]]]:
    """Steps of the first before it stops, steps of the second before the first goes on, and what is wrong then.

    Of the moments at which the first goes on every one, or every `wakes`th, is played, other ones for each stop.
    """
    for stop in stops:
        for wake in count(1 + stop % wakes, wakes):
            played = hand_over(order, stop, wake, instance_type, setting_of)
            if played is None:
                break
            yield stop, wake, played[1]


def hand_over(
    order: Order,
    stop: int,
    wake: int,
    instance_type: type[Instance] = Instance,
    setting_of: Callable[[], Setting] = five_epochs,
) -> tuple[list[str], list[str]] | None:
    """The trace, and what is wrong at its end; None if one of the two comes to rest before it has gone so far."""
    world = World(setting_of(), NoFaults(), instance_type=instance_type)
    world.scheduler.policy = WithObserver(order, world)
    try:
        first = world.start()
        if not _let_go(world, first, stop):
            return None
        first.process.paused = True
        second = world.start()
        if not _let_go(world, second, wake):
            return None
        first.process.paused = False
        world.settle()
        return world.scheduler.trace, violations(world)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this history's
        return world.scheduler.trace, [f"{type(error).__name__}: {error}"]
    finally:
        world.scheduler.end()


def _let_go(world: World, instance: Instance, steps: int) -> bool:
    while instance.process.steps < steps:
        if not world.scheduler.turn():
            return False
    return True
