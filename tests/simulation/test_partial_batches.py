"""Parts of a batch that a crash may leave: from each subset of its effects, by name, the result is the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest

from schemas.records import Row
from state.journal import Journal
from state.progress_table import ProgressTable
from state.replica import Replica
from streaming.verify.history import TopicEntry
from tests.kit.avro_codec import ChangeCodec
from tests.kit.upstream import EPOCH_STEP
from tests.simulation.crashes import twelve_epochs
from tests.simulation.fault_policies import NoFaults, Order
from tests.simulation.judge import violations
from tests.simulation.scheduler import Strand
from tests.simulation.world import World

EPOCH = 6 * EPOCH_STEP
IN_ORDER, LAST_LANE_FIRST = Order(markers_first=True), Order(last_lane_first=True, markers_first=True)


@dataclass(frozen=True)
class Crash:
    """Before this effect of the batch of `EPOCH`, or of the batch after `planned`."""

    effect: str
    order: Order = IN_ORDER
    planned: int = EPOCH


PARTIAL = {
    "nothing": Crash("commit journal", planned=EPOCH - EPOCH_STEP),
    "plan": Crash("commit backfill-replica/log-0"),
    "plan, lane 0": Crash("commit backfill-replica/log-1"),
    "plan, lane 1": Crash("commit backfill-replica/log-0", LAST_LANE_FIRST),
    "plan, lane 0, lane 1": Crash("commit replica/log"),
    "plan, lane 0, lane 1, log": Crash("commit progress"),
    "plan, lane 0, lane 1, log, progress": Crash("commit journal"),
}


class CrashOnce(NoFaults):
    """Kills the service once, at a crash."""

    def __init__(self, crash: Crash | None) -> None:
        super().__init__(IN_ORDER if crash is None else crash.order)
        self.crash = crash
        self.world: World

    def interruption(self, strand: Strand) -> str:
        crash = self.crash
        if crash is None or not strand.at.startswith(crash.effect) or planned(self.world) != crash.planned:
            return "nothing"
        self.crash = None
        return "death"


def crashed(crash: Crash | None) -> World:
    """The world where the crash has just happened; at its end if there is none."""
    policy = CrashOnce(crash)
    policy.world = world = World(twelve_epochs(), policy)
    service = world.start()
    if crash is None:
        world.settle()
    else:
        while service.process.alive:
            assert world.scheduler.turn(), "it came to rest without a crash"
    return world


@cache
def without_faults() -> World:
    return crashed(None)


def planned(world: World) -> int:
    entry = Journal(world.storage, world.setting.table).current
    return 0 if entry is None or entry.plan is None else entry.plan.epoch


def effects(world: World) -> str:
    """Which effects of the batch are there."""
    table, outputs = world.setting.table, records(world)
    there = {
        "plan": planned(world) >= EPOCH,
        **{f"lane {number}": _last(output) >= EPOCH for number, output in enumerate(outputs)},
        "log": Replica(world.storage, table).log_epoch >= EPOCH,
        "progress": ProgressTable(world.storage, table).epoch >= EPOCH,
    }
    return ", ".join(name for name, is_there in there.items() if is_there) or "nothing"


def records(world: World) -> list[list[TopicEntry]]:
    """Of each partition of the output, without their offsets: what was aborted leaves holes."""
    topics = world.durable.topics
    return [
        [entry._replace(offset=0) for entry in topics.committed(place)] for place in topics.partitions("copy")
    ]


def until(epoch: int, outputs: list[list[TopicEntry]]) -> list[list[TopicEntry]]:
    """The outputs up to a barrier."""
    ends = [[entry.barrier for entry in output].index(str(epoch).encode()) for output in outputs]
    return [output[: end + 1] for output, end in zip(outputs, ends, strict=True)]


def compacted(world: World) -> dict[bytes | None, Row]:
    """The table that a reader of the output has in the end."""
    codec, rows = ChangeCodec(world.setting.table.columns), dict[bytes | None, Row]()
    for entry in (entry for output in records(world) for entry in output if entry.barrier is None):
        rows.pop(entry.key, None)
        after = codec.decode(entry.value or b"").after
        if after is not None:
            rows[entry.key] = after
    return rows


def _last(output: list[TopicEntry]) -> int:
    return max((int(entry.barrier) for entry in output if entry.barrier is not None), default=0)


@pytest.mark.parametrize("left", PARTIAL)
def test_whatever_a_crash_leaves_the_result_is_the_same(left: str) -> None:
    world = crashed(PARTIAL[left])
    assert effects(world) == left
    world.settle()
    assert not violations(world)
    assert compacted(world) == compacted(without_faults())
    assert world.durable.starts == 2


@pytest.mark.parametrize("left", [name for name in PARTIAL if name != "nothing"])
def test_a_batch_whose_plan_is_left_is_the_same_byte_by_byte(left: str) -> None:
    world = crashed(PARTIAL[left])
    world.settle()
    assert until(EPOCH, records(world)) == until(EPOCH, records(without_faults()))
