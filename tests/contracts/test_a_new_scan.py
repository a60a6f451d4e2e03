"""A scan that nobody foresaw: a model, what reads it, two entries in the registries, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from schemas.avro.codec import decode_barrier
from schemas.errors import ConfigError
from schemas.job import JobDefinition
from schemas.kinds.kinds import SCAN_KINDS, ScanConfig
from schemas.position import Key
from schemas.records import Op, Row, Throttle
from state.journal import Journal
from state.values.pin import Pin
from streaming.core.planning import Amount, Cut
from streaming.scan.kinds import SCANS, Arrangement
from tests.contracts.by_partition import ALL, ByPartition, ScanByPartition
from tests.kit.avro_codec import ChangeCodec
from tests.kit.tables import items, table, vnode_of
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.crashes import ORDERS, WithObserver
from tests.simulation.fault_policies import NoFaults
from tests.simulation.world import Setting, World

TABLE = table(vnode_count=12)
PARTS = 4
DECLARED = {"name": "copy", "output": "copy", "output_partitions": 2, "rate_limit": 5}
READ = {"kind": "by-partition", "parts": PARTS}


class WholeParts(ScanConfig):
    """The replica, a part at a time: as small as a kind can be."""

    kind: Literal["whole-parts"] = "whole-parts"


class ScanOfWholeParts(Arrangement):
    def cut(self, pin: Pin, part: int, after: Key | None, limit: Amount) -> Cut:
        return super().cut(pin, part, after, ALL)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, Any] = SCAN_KINDS
    scans: dict[Any, Any] = SCANS
    monkeypatch.setitem(kinds, "by-partition", ByPartition)
    monkeypatch.setitem(scans, ByPartition, lambda config, sources: ScanByPartition(config, sources.replica))
    monkeypatch.setitem(kinds, "whole-parts", WholeParts)
    monkeypatch.setitem(scans, WholeParts, lambda _, sources: ScanOfWholeParts(sources.replica))


def declare(read: object) -> JobDefinition:
    return JobDefinition.declare({**DECLARED, "read": read}, TABLE)


def upstream() -> Upstream:
    """A table, and changes of rows that are read early, late, and never because they are gone by then."""
    up = Upstream(TABLE)
    up.put_all(items(range(60)))
    up.barrier()
    for number in range(1, 12):
        up.put_all(items(range(number, 70, 7), n=number))
        gone = [key for key in up.rows if key[0] % 11 == number]
        for key in gone:
            up.delete(*key)
        up.barrier()
    for _ in range(3):
        up.barrier(Throttle("copy", None))
    return up


def backfilled(up: Upstream, job: JobDefinition) -> World:
    """The world at the end, in which the service was killed and started again in the middle of the backfill."""
    changelog = Changelog(up)
    closing = len(up.barriers)
    world = World(Setting(TABLE, changelog, (job,), {"copy": job}, (2,), True, closing), NoFaults())
    world.scheduler.policy = WithObserver(ORDERS[1], world)
    try:
        world.start()
        for number in range(closing):
            world.durable.arrivals.most += 1
            while world.scheduler.turn():
                pass
            if number == closing // 2:
                world.scheduler.kill(world.alive[0].process)
                world.start()
        world.settle()
    finally:
        world.scheduler.end()
    assert [instance.process.ended_by for instance in world.instances] == [None, None]
    return world


def shown_at(world: World, partition: int) -> Iterator[tuple[int, dict[Key, Row], dict[int, int]]]:
    """At each barrier of an output partition: its epoch, the rows so far, up to which vnode each part was read."""
    rows, read, codec = dict[Key, Row](), dict[int, int](), ChangeCodec(TABLE.columns)
    for entry in world.durable.topics.committed(("copy", partition)):
        if entry.barrier is not None:
            barrier = decode_barrier(entry.barrier, entry.value, where="output")
            for each in barrier.progress:
                position = json.loads(each.position or "[0]")[0]
                read[each.vnode] = TABLE.vnode_count if each.finished else int(position)
            yield barrier.curr, dict(rows), dict(read)
            continue
        change = codec.decode(entry.value or b"")
        key = TABLE.key_of(change.row)
        assert (key in rows) == (change.op is not Op.INSERT)
        assert rows.pop(key, None) == change.before
        if change.after is not None:
            rows[key] = change.after


def test_a_kind_that_is_not_there_yet_is_refused_by_naming_those_that_are() -> None:
    with pytest.raises(ConfigError, match="read 'by-partition' is not one of: replica, topic"):
        declare(READ)
    with pytest.raises(ConfigError, match="read 5 is not one of: replica, topic"):
        declare(5)


@pytest.mark.usefixtures("registered")
def test_a_kind_that_is_registered_has_keys_of_its_own() -> None:
    job = declare(READ)
    assert job.part_count == PARTS
    assert JobDefinition.from_json(job.to_json(), TABLE) == job
    assert json.loads(job.to_json())["read"] == READ
    with pytest.raises(ConfigError, match=r"read\.parts is 'two'"):
        declare({**READ, "parts": "two"})
    assert declare("replica") == declare(None) == declare({"kind": "replica"})
    assert "read" not in json.loads(declare("replica").to_json())


@pytest.mark.usefixtures("registered")
def test_a_job_is_backfilled_by_a_kind_that_is_registered() -> None:
    up = upstream()
    world = backfilled(up, declare(READ))
    shown: dict[Key, Row] = {}
    steps = set[tuple[int, int]]()
    for partition in range(2):
        for epoch, rows, read in shown_at(world, partition):
            shown_by_now = {
                key: row
                for key, row in world.setting.changelog.rows_at(epoch).items()
                if vnode_of(TABLE, key) * 2 // TABLE.vnode_count == partition
                and vnode_of(TABLE, key) <= read.get(vnode_of(TABLE, key) * PARTS // TABLE.vnode_count, -1)
            }
            assert rows == shown_by_now
            steps |= read.items()
        shown |= rows
    assert shown == up.rows
    assert len(steps) > 2 * PARTS, "parts were read in several slices"
    current = Journal(world.storage, TABLE).current
    assert current is not None
    assert current.plan is not None
    assert {job.state.definition.scan for job in current.plan.jobs} == {ByPartition(parts=PARTS)}


@pytest.mark.usefixtures("registered")
def test_ten_lines_are_a_scan() -> None:
    up = upstream()
    world = backfilled(up, declare("whole-parts"))
    rows: dict[Key, Row] = {}
    positions = set[str | None]()
    for partition in range(2):
        *_, (_, last_rows, _) = shown_at(world, partition)
        rows |= last_rows
        barriers = [entry for entry in world.durable.topics.committed(("copy", partition)) if entry.barrier]
        for entry in barriers:
            progress = decode_barrier(entry.barrier, entry.value, where="output").progress
            positions |= {each.position for each in progress if not each.finished}
    assert rows == up.rows
    assert not positions, "no part was ever read in two slices"
