"""The world of a history: what outlives every process, and who is alive in it.

    durable      topics of the broker, state folder, how much of the upstream has arrived, the clock
    transient    instances of the service; one that dies leaves nothing but what it did to the durable part

As a crash destroys all that is transient, a copy of the durable part is all that is needed to go on from it: that is
how crash points are enumerated (`tests.simulation.crashes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.job import JobDefinition
from schemas.settings.limits import Limits
from schemas.table import TableSchema
from state.journal import Journal
from streaming.source.barriers.injecting.control_requests import SuspendedAction
from tests.simulation.arrivals import Arrivals
from tests.simulation.broker import Broker, Topics
from tests.simulation.changelog import Changelog
from tests.simulation.fault_policies import NoFaults
from tests.simulation.instance import Instance
from tests.simulation.rows import Disk
from tests.simulation.scheduler import FaultPolicy, Process, Scheduler
from tests.simulation.storage import Files, MemoryStorage

INTERVAL_MS = 1_000
MOST_TURNS = 5_000


@dataclass(frozen=True)
class Setting:
    """The setting of a history; `lanes` are the choices for each start of an instance."""

    table: TableSchema
    changelog: Changelog
    jobs: tuple[JobDefinition, ...]
    every_job: dict[str, JobDefinition]
    """By output: all jobs that the changelog may ever add."""
    lanes: tuple[int, ...]
    compactions: bool
    closing: int = 0
    """Barriers at the end of the changelog that stay back until everything else is done."""
    limits: Limits = Limits()  # noqa: RUF009 (a value)
    """From which size on intervals go in parts."""
    takes: Callable[[int], int | None] = lambda barriers: None
    """Key and value that a record of an output may have once so many barriers have arrived."""
    parks: bool = True
    """True if invalid records go to the dead letters; else an operator leaves them out."""
    deletes: bool = False
    """Whether old barriers are deleted from topics of their own, at every chance."""


@dataclass
class Durable:
    """Data that survives every crash."""

    topics: Topics
    files: Files
    arrivals: Arrivals
    disk: Disk = field(default_factory=Disk)
    """The lanes' rows, on the machine that all instances run on."""
    now_ms: int = 0
    starts: int = 0
    restored: bool = False
    """Whether the state folder was ever replaced by an older one."""
    requests: list[SuspendedAction] = field(default_factory=list)
    """The control topic: requests to a suspended table."""

    @classmethod
    def beginning(cls, setting: Setting) -> Durable:
        """Nothing is there yet."""
        most = len(setting.changelog.barriers[0]) - setting.closing
        return cls(Topics(), Files(), Arrivals(setting.changelog, most, deletes=setting.deletes))

    def copy(self) -> Durable:
        """A second one in the same state: what happens to one leaves the other as it is."""
        durable = self.topics.copy(), self.files.copy(), self.arrivals.copy(), self.disk.copy()
        return Durable(*durable, self.now_ms, self.starts, self.restored, list(self.requests))


def may_restore(setting: Setting, backup: Files) -> bool:
    """True for a state that a service can go on from.

    While a table is read it has to be the newest. So has one whose outputs gain the partitions of the topic.
    """
    if setting.changelog.rise and any(job.scan.reads_upstream for job in setting.every_job.values()):
        return False
    if setting.changelog.timeline is None:
        return True
    storage = MemoryStorage(backup.copy(), Scheduler(NoFaults()))
    entry = Journal(storage, setting.table).current
    assert entry is not None and entry.plan is not None  # noqa: PT018
    return entry.plan.reading is None


class World:
    """Lets a setting run. `instance_type` may be one with a broken protocol."""

    def __init__(
        self,
        setting: Setting,
        policy: FaultPolicy,
        durable: Durable | None = None,
        instance_type: type[Instance] = Instance,
    ) -> None:
        self.setting, self.instance_type = setting, instance_type
        self.durable = durable or Durable.beginning(setting)
        self.scheduler = Scheduler(policy)
        self.scheduler.now_ms = self.durable.now_ms
        self.storage = MemoryStorage(self.durable.files, self.scheduler)
        self.instances: list[Instance] = []
        self._environment = Process("world")
        self.scheduler.spawn(self._environment, "broker", Broker(self.durable.topics, self.scheduler).work)
        self.scheduler.spawn(self._environment, "upstream", self._arrive)
        timeline = setting.changelog.timeline
        if timeline is not None and timeline.goes_on:
            self.scheduler.spawn(self._environment, "database", self._go_on)

    # what happens by itself --------------------------------------------------------------------------------

    def _arrive(self) -> None:
        arrivals = self.durable.arrivals
        while True:
            self.scheduler.step("arrivals", lambda: bool(arrivals.waiting()))
            waiting = arrivals.waiting()
            slowest = min(arrivals.counts)
            near = [number for number in waiting if arrivals.counts[number] < slowest + 2]
            number = int(self.scheduler.outcome("arrival", *map(str, near)))
            arrivals.arrive(number)
            self.pass_time(INTERVAL_MS // arrivals.changelog.count)

    def _go_on(self) -> None:
        """The database is ahead of what arrives."""
        arrivals = self.durable.arrivals
        while True:
            self.scheduler.step("moments pass", lambda: arrivals.moment < arrivals.latest_moment)
            moments = self.scheduler.outcome("moments", "all", "1", "3", "10")
            ahead = arrivals.latest_moment - arrivals.moment
            arrivals.moment += ahead if moments == "all" else min(int(moments), ahead)

    def pass_time(self, milliseconds: int) -> None:
        """Let the clock go on."""
        self.scheduler.now_ms += milliseconds
        self.durable.now_ms = self.scheduler.now_ms
        self.durable.topics.time_out(self.scheduler.now_ms)

    # what is done to it ------------------------------------------------------------------------------------

    def start(self) -> Instance:
        """A new instance of the service, whether or not there is one."""
        self.durable.starts += 1
        lanes = self.setting.lanes[(self.durable.starts - 1) % len(self.setting.lanes)]
        instance = self.instance_type(
            f"service-{self.durable.starts}",
            scheduler=self.scheduler,
            topics=self.durable.topics,
            files=self.durable.files,
            disk=self.durable.disk,
            arrivals=self.durable.arrivals,
            table=self.setting.table,
            jobs=self.setting.jobs,
            lanes=lanes,
            compactions=self.setting.compactions,
            limits=self.setting.limits,
            takes=self.setting.takes,
        )
        instance.requests = self.durable.requests
        self.instances.append(instance)
        instance.start()
        return instance

    @property
    def alive(self) -> list[Instance]:
        """Instances that have not ended, paused ones included."""
        return [instance for instance in self.instances if instance.process.alive]

    def lose_power(self) -> None:
        """The host of the service fails, not the broker's: the policy says what is left of what was not synced."""
        for instance in self.alive:
            self.scheduler.kill(instance.process)
        self.scheduler.trace.append("power failure")
        self.durable.disk.stores.clear()
        self.durable.files.lose_power(self._loss)

    def restore(self, backup: Files) -> None:
        """All instances are ended, and the state is what it once was."""
        for instance in self.alive:
            self.scheduler.kill(instance.process)
        self.scheduler.trace.append("an older state is restored")
        self.durable.files.restore(backup)
        self.durable.restored = True

    def _loss(self, path: str) -> str:
        """Of a file; an empty one is distinguished only where it matters, among commits."""
        lost = ("gone", "empty") if path.endswith(".json") else ("gone",)
        left = self.scheduler.policy.outcome("power", "kept", *lost)
        self.scheduler.trace.append(f"{path} is {left}")
        return left

    def settle(self) -> None:
        """Run on, healing what is left, until an instance has done everything that there is to do."""
        while True:
            self._run_out()
            paused = [instance for instance in self.alive if instance.process.paused]
            if paused:
                paused[0].process.paused = False
            elif not self.alive:
                self.start()
            elif self.durable.topics.current:
                self.pass_time(61_000)
            elif not self.durable.arrivals.is_over:
                self.durable.arrivals.most += 1
            else:
                return

    def _run_out(self) -> None:
        while self.scheduler.turn():
            assert len(self.scheduler.trace) < MOST_TURNS, "no end in sight"
