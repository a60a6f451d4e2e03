"""Every power failure of one job: before each step, with each way to lose what was not synced.

All instances are gone at once, and with them any part of what the disk had not yet. The broker is another host, and
keeps everything. What a file can come to is up to the file, so the ways are few: at most one commit and its files are
at risk where all is synced in time, and more where a canary leaves a sync out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.simulation.cases import Case
from tests.simulation.crashes import left_before_each_step, play_on
from tests.simulation.fault_policies import Order
from tests.simulation.instance import Instance
from tests.simulation.state_digest import state_digest
from tests.simulation.storage import Loss
from tests.simulation.world import Durable, Setting

WAYS: dict[str, Loss] = {
    "all is gone": lambda path: "gone",
    "all is empty": lambda path: "empty",
    "only commits are left": lambda path: "kept" if path.endswith(".json") else "gone",
    "commits are gone": lambda path: "gone" if path.endswith(".json") else "kept",
    "journal and progress are left": lambda path: (
        "kept" if path.startswith(("journal", "progress")) else "gone"
    ),
    "the replica is left": lambda path: "kept" if path.startswith("replica") else "gone",
}


def power_failures(
    setting: Setting, order: Order, instance_type: type[Instance] = Instance
) -> Iterator[Case]:
    """Each that leaves something new, by step and way."""
    left, wrong = left_before_each_step(setting, order, instance_type)
    yield Case("none", lambda: wrong)
    known: set[tuple[bytes, str]] = set()
    for step, durable in enumerate(left):
        before = state_digest(durable)
        for way, loss in WAYS.items():
            losses = repr([(path, loss(path)) for path in durable.files.at_risk])
            if durable.files.at_risk and (before, losses) not in known:
                known.add((before, losses))
                lost = durable.copy()
                lost.files.lose_power(loss)
                yield Case(f"step {step}, {way}", _after(setting, order, lost, instance_type))


def _after(
    setting: Setting, order: Order, lost: Durable, instance_type: type[Instance]
) -> Callable[[], list[str]]:
    return lambda: play_on(setting, order, lost, instance_type=instance_type)[1]
