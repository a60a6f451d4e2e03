"""One seed, one history: what the upstream holds, which jobs there are, and everything that goes wrong."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.formats.outputs.formats import UpsertOutput
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.job import JobDefinition
from schemas.records import Change, Mutation, Op, Resume, Throttle
from schemas.settings.limits import Limits
from schemas.table import TableSchema
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.upstream import Upstream
from tests.simulation import from_database, rows_behind
from tests.simulation.beside import BesideChangelog
from tests.simulation.changelog import Changelog
from tests.simulation.connector import ConnectorUpstream, FromConnector, WholeFromConnector
from tests.simulation.fault_policies import Seeded
from tests.simulation.instance import Instance
from tests.simulation.jobs import (
    FORMS,
    by_partition,
    in_form,
    job_of,
    of_extent,
    reading_topic,
    shown_otherwise,
    table_by_partition,
    table_of,
)
from tests.simulation.judge import violations
from tests.simulation.mutations import mutations, next_mutation
from tests.simulation.rows import AfterOnly
from tests.simulation.world import Setting, World, may_restore

KEYS = 8
CLOSING = (Resume(None), Throttle("copy", None), Throttle("late", None), None, None)
"""What lets every job finish, also if one of these batches goes without slices (`recovery.forward`)."""
MOST_INSTANCES = 2
"""Alive at a time."""

RESTORED = 0.25
"""Of all histories, those in which an older state may be restored."""

BESIDE = 0.3
"""Of all histories, those whose barriers stand beside the data."""

AFTER_ONLY = 0.3
"""Of all histories, those whose upstream has no rows before."""

CONNECTOR = 0.15
"""Of all histories, those whose upstream is a connector's, which has none either."""

WHOLE = 0.3
"""Of the histories of a connector, those with whole rows before."""

FROM_TOPIC = 0.35
"""Of all histories, those in which jobs may read the topic; their upstream has rows before."""

FROM_DATABASE = 0.1
"""Of all histories, those whose table starts from its database."""

ROWS_BEHIND = 0.05
"""Of all histories, those in which lanes' rows fall behind while the log is merged."""

PAUSED, PAUSES_ALL = 0.2, 0.5
"""Of all jobs, those that are created paused; of all starts in such histories, those that pause every job."""

RESCALED = 0.08
"""Of all histories, those whose lanes change while an instance runs, where they may."""


NO_SHUFFLE = 0.2
"""Of all histories, those whose vnodes are the upstream's partitions."""


OUTPUTS_BESIDE = 0.3
"""Of all histories, those whose outputs have their barriers in topics of their own."""


DELETES = 0.5
"""Of the histories with a topic of barriers, those in which old ones are deleted at every chance."""
PERIOD_SHARE_MS = 1_200_000
"""Between two barriers, so that two of three are full."""


def _upstream(
    table: TableSchema, partitions: int, jobs: Iterable[JobDefinition], connector: random.Random | None
) -> Upstream:
    if connector is None:
        return Upstream(table, partitions)
    # Behind a delete, a tombstone is another one to lanes that know no rows before: an upsert output may have both.
    of_rows = (job for job in jobs if not (job.filter or job.key))
    may_delete_twice = any(isinstance(job.format, UpsertOutput) for job in of_rows)
    return ConnectorUpstream(table, partitions, connector, tombstones=not may_delete_twice)


def _extents(jobs: Mapping[str, JobDefinition], chance: random.Random) -> dict[str, JobDefinition]:
    return {output: of_extent(job, chance.random()) for output, job in jobs.items()}


def _shaped(jobs: Mapping[str, JobDefinition], drawn: object) -> dict[str, JobDefinition]:
    shown, held = (random.Random(f"{what} {drawn}") for what in ("shown", "paused"))
    shaped = {output: shown_otherwise(job, shown) for output, job in jobs.items()}
    return {output: replace(job, paused=held.random() < PAUSED) for output, job in shaped.items()}


def _close(upstream: Upstream, jobs: Iterable[JobDefinition]) -> Sequence[Mutation | None]:
    """Jobs of the file are created with the first of these, if a start that pauses all has nothing to do before."""
    closing = (None, *CLOSING) if any(job.paused for job in jobs) else CLOSING
    for last in closing:
        upstream.barrier(last)
    return closing


def draw_setting(rng: random.Random) -> Setting:
    """Three to six intervals on a few keys, with mutations; the last ones let every job finish."""
    vnodes = rng.choice([2, 3, 4])
    table = table_of(vnodes)
    jobs = {
        output: job_of(name, output, vnodes, rng.choice([1, 2, 4, None]), rng.choice([None, "n >= 1"]))
        for name, output in (("copy", "copy"), ("late", "late"), ("late", "later"))
    }
    is_configured = rng.random() < 0.8
    partitions = rng.randint(1, 3)
    apart = random.Random(repr(rng.getstate()))
    outputs = random.Random(apart.random())
    if outputs.random() < OUTPUTS_BESIDE:
        jobs = {output: in_form(job, outputs.choice(FORMS)) for output, job in jobs.items()}
    jobs = _extents(jobs, random.Random(f"extent {apart.getstate()}"))
    sources = random.Random(repr(apart.getstate()))
    from_topic = (
        [output for output in jobs if sources.random() < 0.5] if sources.random() < FROM_TOPIC else []
    )
    jobs |= {output: reading_topic(jobs[output]) for output in from_topic}
    is_coupled = random.Random(f"no shuffle {apart.getstate()}").random() < NO_SHUFFLE
    if is_coupled:
        table = table_by_partition(partitions)
        jobs = {output: by_partition(job, partitions) for output, job in jobs.items()}
    jobs = _shaped(jobs, apart.getstate())
    connector = random.Random(apart.random()) if apart.random() < CONNECTOR and not from_topic else None
    upstream = _upstream(table, partitions, jobs.values(), connector)
    upstream.every_ms = PERIOD_SHARE_MS
    vandal = Vandal(upstream, apart)
    riding = mutations(list(jobs.values()), rng)
    rescales = random.Random(f"rescaled 1 {apart.getstate()}")
    others = rescales if rescales.random() < RESCALED else None
    for _ in range(rng.randint(3, 6)):
        _interval(upstream, rng)
        vandal.interval()
        if isinstance(upstream, ConnectorUpstream) and connector is not None:
            _again(upstream, connector)
        upstream.barrier(next_mutation(riding, rng, others))
    closing = _close(upstream, jobs.values())
    limits = _limits(apart)
    changelog = BesideChangelog if apart.random() < BESIDE else Changelog
    format_: UpstreamFormat = AfterOnly() if apart.random() < AFTER_ONLY and not from_topic else DEFAULT
    if connector is not None:
        format_ = WholeFromConnector() if connector.random() < WHOLE else FromConnector()
    return Setting(
        table,
        changelog(upstream, frozenset(vandal.places), format_),
        (jobs["copy"],) if is_configured else (),
        jobs,
        lanes=_lanes(
            [rng.choice([1, 2, 2]) for _ in range(4)],
            partitions if from_topic or is_coupled else 2,
            otherwise=partitions if is_coupled else 1,
            share=not is_coupled,
        ),
        compactions=rng.random() < 0.5,
        closing=len(closing),
        limits=limits,
        deletes=random.Random(f"deletes {apart.getstate()}").random() < DELETES,
    )


def _lanes(drawn: list[int], partitions: int, *, otherwise: int, share: bool) -> tuple[int, ...]:
    """The numbers of lanes that divide the partitions of every output; with `share` any that are no more than these."""
    return tuple(
        lanes if partitions % lanes == 0 or (share and lanes <= partitions) else otherwise for lanes in drawn
    )


def _limits(chance: random.Random) -> Limits:
    """In every third history intervals of more than a few records go in parts."""
    if chance.random() < 2 / 3:
        return Limits()
    return Limits(interval_records=chance.choice([1, 3, 6]), part_records=chance.choice([1, 2]))


def _interval(upstream: Upstream, rng: random.Random) -> None:
    for _ in range(rng.choice([0, 1, 3, 6])):
        key = rng.randrange(KEYS)
        if (key,) in upstream.rows and rng.random() < 0.3:
            upstream.delete(key)
        else:
            upstream.put((key, rng.choice([None, 0, 1, 2])))


def _again(upstream: ConnectorUpstream, chance: random.Random) -> None:
    for number in range(len(upstream.topic.partitions)):
        if chance.random() < 0.3:
            upstream.again(number, chance.randint(1, 4))


class Vandal:
    """Writes records that are no changes, in every third history; `places` are theirs."""

    def __init__(self, upstream: Upstream, chance: random.Random) -> None:
        self._upstream, self._chance = upstream, chance
        self._busy = chance.random() < 1 / 3
        self.places: list[tuple[int, int]] = []

    def interval(self) -> None:
        """Up to two, behind what the interval holds so far."""
        for _ in range(self._chance.choice([0, 1, 2]) if self._busy else 0):
            topic, keys = self._upstream.topic, KeyCodec(self._upstream.table.key_columns)
            number = self._chance.randrange(len(topic.partitions))
            insert = Change(Op.INSERT, None, (self._chance.randrange(KEYS), 0))
            value = self._chance.choice([b"", b"?", ChangeCodec(self._upstream.table.columns).encode(insert)])
            topic.append(number, keys.encode((KEYS,)), value)  # a key of no table
            self.places.append((number, topic.partitions[number][-1].offset))


@dataclass(frozen=True)
class Verdict:
    """Of one history. `digest` is the same whenever the seed is."""

    seed: int
    violations: list[str]
    digest: str
    trace: list[str]
    faults: int
    starts: int


def play(seed: int, instance_type: type[Instance] = Instance) -> Verdict:
    """The history of a seed."""
    if random.Random(f"database {seed}").random() < FROM_DATABASE:
        return play_from_database(seed, instance_type)
    if random.Random(f"behind {seed}").random() < ROWS_BEHIND:
        return play_rows_behind(seed, instance_type)
    rng = random.Random(seed)
    return played(draw_setting(rng), rng, seed, instance_type)


def play_rows_behind(seed: int, instance_type: type[Instance] = Instance) -> Verdict:
    """A history in which lanes' rows fall behind, whatever kind the seed itself has."""
    rng = random.Random(seed)
    return played(rows_behind.draw_setting(rng), rng, seed, instance_type, rows_behind.Merging)


def play_from_database(seed: int, instance_type: type[Instance] = Instance) -> Verdict:
    """A history of a table that starts from its database, whatever kind the seed itself has."""
    rng = random.Random(seed)
    return played(from_database.draw_setting(rng), rng, seed, instance_type)


def played(
    setting: Setting,
    rng: random.Random,
    seed: int = 0,
    instance_type: type[Instance] = Instance,
    policy_type: type[Seeded] = Seeded,
) -> Verdict:
    """A random history of a setting, whose last barriers have to let every job finish, as `CLOSING` does."""
    policy = policy_type(rng)
    world = World(setting, policy, instance_type=instance_type)
    world.start()
    try:
        _run(world, policy, random.Random(f"starts paused {seed}"))
        wrong = violations(world)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this seed's
        wrong = [f"{type(error).__name__}: {error}"]
    finally:
        world.scheduler.end()
    scheduler = world.scheduler
    return Verdict(seed, wrong, scheduler.digest(), scheduler.trace, policy.faults, world.durable.starts)


def _run(world: World, policy: Seeded, held: random.Random) -> None:
    rng = policy.rng
    backup = world.durable.files.copy() if rng.random() < RESTORED else None
    # A state that is restored from before the oldest barrier has missed its mutations.
    world.durable.arrivals.deletes_upstream = world.setting.deletes and backup is None
    while world.scheduler.turn():
        if backup is not None and rng.random() < 0.01:
            if rng.random() < 0.6:
                backup = world.durable.files.copy()
            elif backup.has_plan() and may_restore(world.setting, backup):
                world.restore(backup)
        moving = [instance for instance in world.alive if not instance.process.paused]
        if not moving and len(world.alive) <= MOST_INSTANCES and rng.random() < 0.3:
            _start(world, held)
        elif world.alive and rng.random() < 0.02:
            _meddle(world, rng, held)
    policy.heal()
    world.settle()


def _start(world: World, held: random.Random) -> None:
    """An instance, perhaps one that pauses all jobs: they are resumed by a barrier of the end."""
    instance = world.start()
    instance.paused = (
        any(job.paused for job in world.setting.every_job.values()) and held.random() < PAUSES_ALL
    )


def _meddle(world: World, rng: random.Random, held: random.Random) -> None:
    """Act as an operator, or a supervisor that is wrong, may at any time."""
    paused = [instance for instance in world.alive if instance.process.paused]
    match rng.choice(["continue", "continue", "start", "time passes", "power failure"]):
        case "continue" if paused:
            rng.choice(paused).process.paused = False
        case "start" if len(world.alive) < MOST_INSTANCES:
            _start(world, held)
        case "time passes" if rng.random() < 0.3:
            world.pass_time(61_000)
        case "power failure" if rng.random() < 0.5:
            world.lose_power()
