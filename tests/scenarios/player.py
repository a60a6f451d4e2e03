"""Plays a scenario on the simulation. Each command of a script is a method `do_...` of `Writer` or of `Player`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from schemas.errors import ConfigError, InputError
from state.journal import Journal
from streaming.protocol.batches import Batches
from streaming.protocol.report import BatchReport
from tests.scenarios.database import ScriptedReader
from tests.scenarios.incidents import Fault, Incident, Incidents
from tests.scenarios.places import step_of
from tests.scenarios.script import Block, Command, ScriptError
from tests.scenarios.shown import Shown
from tests.scenarios.statements import writer_for
from tests.simulation.altering import AddsItself
from tests.simulation.instance import Instance
from tests.simulation.judge import violations
from tests.simulation.storage import Files
from tests.simulation.world import World

SECOND_MS = 1_000
MOST_TURNS = 5_000


class Observed(Instance):
    """Keeps which mutations were refused."""

    reader_type = ScriptedReader

    refused: tuple[str, ...] = ()

    def batch_done(self, report: BatchReport) -> None:
        super().batch_done(report)
        self.refused += tuple(f"refused: {each.refused}" for each in report.outcome.reports if each.refused)

    def refuse_rescale(self, batches: Batches) -> None:
        try:
            super().refuse_rescale(batches)
        except ConfigError as error:
            self.refused += (f"refused: {error.code}",)
            raise


class ObservedGrowing(Observed, AddsItself):
    """Tells when its table grows."""

    def ends_by(self, fault: InputError, journal: Journal) -> bool:
        self.refused += (f"{fault.code} at {fault.where}: c becomes a column",)
        return super().ends_by(fault, journal)


class Player:
    """One scenario, to be played once."""

    def __init__(self, blocks: list[Block]) -> None:
        self._blocks = blocks
        commands = [command for block in blocks for command in block.commands]
        self._writer = writer_for(commands)
        self._writer.write(commands)
        self._incidents = Incidents()
        kind = Observed if self._writer.with_c is None else ObservedGrowing
        self._world = World(self._writer.setting(), self._incidents, instance_type=kind)
        self._shown = Shown(self._writer.keys)
        self._written = 0
        self._backup: Files | None = None
        self._traced = 0
        self._lines: list[str] = []

    def play(self) -> tuple[list[list[str]], list[str]]:
        """The print of each block, and the faults once everything has come to its end. Raises: ScriptError."""
        try:
            printed = [self._play(block) for block in self._blocks]
            if self._incidents.armed is not None:
                raise ScriptError(
                    self._blocks[-1].line, f"no instance has come to {self._incidents.armed.step}"
                )
            self._world.settle()
            return printed, violations(self._world)
        finally:
            self._world.scheduler.end()

    def _play(self, block: Block) -> list[str]:
        for command in block.commands:
            player, writer = (getattr(who, f"do_{command.name}", None) for who in (self, self._writer))
            if player is None and writer is None:
                raise ScriptError(command.line, f"there is no command {command.name}")
            self._go_on(command)
            if player is not None:
                player(command)
        printed, self._lines = self._lines, []
        return printed

    def _go_on(self, command: Command) -> None:
        """The database is where it is behind a line, and each reader sees that at once."""
        arrivals = self._world.durable.arrivals
        moment = self._writer.moments.get(command.line, arrivals.moment)
        if moment != arrivals.moment:
            arrivals.moment = moment
            self._run()

    def _run(self) -> None:
        """Let all go on until none can, and print what came of it."""
        scheduler = self._world.scheduler
        for _ in range(MOST_TURNS):
            if not scheduler.turn():
                break
        else:
            raise AssertionError("no end in sight")
        if overdue := self._incidents.overdue():
            process, interruption = overdue
            process.paused = interruption == "pause"
            if interruption == "death":
                scheduler.kill(process)
        self._print(*self._news())

    def _news(self) -> Iterator[str]:
        yield from self._incidents.events
        self._incidents.events.clear()
        trace = self._world.scheduler.trace
        ends = (line for line in trace[self._traced :] if " ends: " in line)
        yield from (line.replace("-", " ", 1) for line in ends)
        self._traced = len(trace)
        for instance in self._world.instances:
            if isinstance(instance, Observed):
                yield from instance.refused
                instance.refused = ()
        yield from self._shown.news(self._world)

    def _print(self, *lines: str) -> None:
        self._lines += lines

    # the upstream arrives ----------------------------------------------------------------------------------

    def do_barrier(self, command: Command) -> None:
        """It is written, and arrives with a later `step` or `arrive`."""
        command.expect(1)
        self._written += 1

    def do_repeat(self, command: Command) -> None:
        """The barrier that is written again arrives like any other."""
        command.expect(1)
        self._written += 1

    def do_step(self, command: Command) -> None:
        """`step seconds=1`: a barrier; time passes, all arrives, and the service does all that it can."""
        command.expect(1, "seconds")
        self._written += 1
        self._arrive(None, command.number("seconds", 1))

    def do_arrive(self, command: Command) -> None:
        """`arrive partition=0`: what is written so far arrives, in one partition of the upstream or in all."""
        command.expect(1, "partition")
        only = command.number("partition", 0) if "partition" in command.options else None
        self._arrive(only, 1)

    def do_wait(self, command: Command) -> None:
        """`wait seconds=61`: time passes, and nothing arrives."""
        command.expect(1, "seconds")
        self._world.pass_time(command.number("seconds", 1) * SECOND_MS)
        self._run()

    def _arrive(self, only: int | None, seconds: int) -> None:
        arrivals = self._world.durable.arrivals
        for number in range(len(arrivals.counts)):
            if only in (None, number):
                arrivals.counts[number] = self._written
        arrivals.most = min(arrivals.counts)
        self._world.pass_time(seconds * SECOND_MS)
        self._run()

    # instances ---------------------------------------------------------------------------------------------

    def do_start(self, command: Command) -> None:
        """`start lanes=2 paused=yes`: an instance of the service, beside another one if there is one."""
        command.expect(1, "lanes", "paused")
        self._start(command)

    def do_restart(self, command: Command) -> None:
        """`restart lanes=2 paused=yes`: the next instance, once the one before is no more."""
        command.expect(1, "lanes", "paused")
        if self._world.alive:
            raise ScriptError(command.line, f"{self._world.alive[0].process.name} is alive")
        self._start(command)

    def do_rescale(self, command: Command) -> None:
        """`rescale lanes=4`: `stop` and `restart`."""
        self.do_stop(replace(command, options={}))
        self.do_restart(command)

    def do_rebuild(self, command: Command) -> None:
        """`restart` that makes a lost state anew."""
        command.expect(1, "lanes")
        self._start(command, rebuilds=True)

    def do_stop(self, command: Command) -> None:
        """All instances end between two batches."""
        command.expect(1)
        for instance in self._world.alive:
            self._world.scheduler.kill(instance.process)

    def do_wake(self, command: Command) -> None:
        """`wake`: instances that stand still go on."""
        command.expect(1)
        for instance in self._world.alive:
            instance.process.paused = False
        self._run()

    def _start(self, command: Command, *, rebuilds: bool = False) -> None:
        if "lanes" in command.options:
            lanes = (command.number("lanes", 1),)
            self._world.setting = replace(self._world.setting, lanes=lanes)
        instance = self._world.start()
        instance.rebuilds, instance.paused = rebuilds, command.options.get("paused") == "yes"
        self._run()

    # incidents ---------------------------------------------------------------------------------------------

    def do_crash(self, command: Command) -> None:
        """`crash before commit progress`, `crash after lane 0 sent`: the instance that gets there next dies."""
        self._arm(command, self._incident(command))

    def do_freeze(self, command: Command) -> None:
        """`freeze before commit log`: the instance stands still there until `wake`."""
        self._arm(command, self._incident(command))

    def do_fault(self, command: Command) -> None:
        """`fault "answer lost" at lane 0 sends`: the effect goes wrong in one of its ways."""
        way, *words = command.words[1:]
        step = step_of(words[1:])
        if words[:1] != ["at"] or step is None:
            raise ScriptError(command.line, f"{' '.join(words)} is no place")
        self._arm(command, Fault(way, step, " ".join(words[1:])))

    def do_compact(self, command: Command) -> None:
        """The replica is compacted behind the next batch."""
        command.expect(1)
        self._incidents.maintenance = "compact"

    def do_merge(self, command: Command) -> None:
        """The log's small files become one behind the next batch."""
        command.expect(1)
        self._incidents.maintenance = "merge"

    def _incident(self, command: Command) -> Incident:
        when, words = command.words[1], command.words[2:]
        step = step_of(words)
        if step is None or when not in ("before", "after"):
            raise ScriptError(command.line, f"{' '.join(command.words[1:])} is no place")
        return Incident(
            "crash" if command.name == "crash" else "freeze",
            when == "after",
            step,
            " ".join(command.words[1:]),
        )

    def _arm(self, command: Command, what: Incident | Fault) -> None:
        if self._incidents.armed is not None:
            raise ScriptError(command.line, f"no instance has come to {self._incidents.armed.step} yet")
        self._incidents.armed = what

    # the state ---------------------------------------------------------------------------------------------

    def do_state(self, command: Command) -> None:
        """Print how far journal, log and progress are."""
        command.expect(1)
        self._print(*self._shown.state(self._world))

    def do_backup(self, command: Command) -> None:
        """Copy the state."""
        command.expect(1)
        self._backup = self._world.durable.files.copy()

    def do_restore(self, command: Command) -> None:
        """All instances end, and the state is the copy."""
        command.expect(1)
        if self._backup is None:
            raise ScriptError(command.line, "there is no backup")
        self._world.restore(self._backup)

    def do_lose(self, command: Command) -> None:
        """`lose state`: nothing is left of it. `lose power`: what was not synced is gone. All instances end."""
        command.expect(2)
        match command.words[1]:
            case "state":
                self._world.restore(Files())
            case "power":
                self._incidents.unsynced = "gone"
                self._world.lose_power()
            case what:
                raise ScriptError(command.line, f"{what} can't be lost")
