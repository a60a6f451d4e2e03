"""Every single thing that can go wrong without a crash: the service gets over it by itself."""

from __future__ import annotations

import pytest

from tests.simulation.crashes import job_of_epochs
from tests.simulation.fault_policies import NoFaults
from tests.simulation.judge import violations
from tests.simulation.world import World

CHOICES = {"arrival", "maintenance"}
"""What may come out in several ways, none of them bad."""


class OneFault(NoFaults):
    """One effect goes wrong: the one of this number, in one of its ways. `ways` are those of all effects so far."""

    def __init__(self, number: int | None = None, way: str = "") -> None:
        super().__init__()
        self.number, self.way = number, way
        self.ways: list[tuple[str, tuple[str, ...]]] = []

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        if of in CHOICES:
            return harmless
        self.ways.append((of, others))
        return self.way if len(self.ways) - 1 == self.number else harmless


def played(policy: OneFault) -> World:
    world = World(job_of_epochs(6), policy)
    world.start()
    world.settle()
    return world


@pytest.mark.slow
def test_the_service_gets_over_every_single_fault_without_a_restart() -> None:
    """A lost answer, an aborted transaction, a task that runs twice, a job that fails, each at each effect."""
    none = OneFault()
    played(none)
    faults = [(number, of, way) for number, (of, ways) in enumerate(none.ways) for way in ways]
    assert {"answer lost", "request lost", "late", "aborted", "no answer", "twice at once", "job fails"} <= {
        way for _, _, way in faults
    }
    for number, of, way in faults:
        world = played(OneFault(number, way))
        assert not violations(world), (number, of, way)
        assert world.durable.starts == 1, (number, of, way, world.instances[0].process.ended_by)
        world.scheduler.end()
