"""Incidents of scenarios: crashes, long pauses and failed effects, each once, at a place that is armed before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.scenarios.places import MAINTENANCE_STEP, is_at
from tests.simulation.fault_policies import NoFaults, Order
from tests.simulation.scheduler import Process, Strand

INTERRUPTIONS = {"crash": "death", "freeze": "pause"}
PRINTED = {"crash": "crashes", "freeze": "stands still"}


@dataclass(frozen=True)
class Incident:
    """`words` are the script's: `before commit progress`."""

    kind: Literal["crash", "freeze"]
    after: bool
    step: str
    words: str


@dataclass(frozen=True)
class Fault:
    """An effect that goes wrong in one of its ways (`answer lost`)."""

    way: str
    step: str
    words: str


class Incidents(NoFaults):
    """A policy without faults but for what is armed. `events`: what has happened and was not printed."""

    def __init__(self) -> None:
        super().__init__(Order(markers_first=True))
        self.armed: Incident | Fault | None = None
        self.maintenance: str | None = None
        """What the replica's maintenance does at its next opportunity: `compact` or `merge`."""
        self.unsynced = "kept"
        """What a power failure makes of files that are not on the disk."""
        self.events: list[str] = []
        self._at = ""
        self._passed: Process | None = None

    def interruption(self, strand: Strand) -> str:
        self._at = strand.at
        incident = self.armed
        if not isinstance(incident, Incident) or strand.process.name == "world":
            return "nothing"
        if self._passed is not None:
            return self._interrupt(incident, strand.process) if strand.process is self._passed else "nothing"
        if not is_at(strand.at, incident.step):
            return "nothing"
        if incident.after:
            self._passed = strand.process
            return "nothing"
        return self._interrupt(incident, strand.process)

    def overdue(self) -> tuple[Process, str] | None:
        """The process that is past its place, and what happens to it: for when no process can go on."""
        if self._passed is None or not isinstance(self.armed, Incident):
            return None
        return self._passed, self._interrupt(self.armed, self._passed)

    def _interrupt(self, incident: Incident, process: Process) -> str:
        self.armed = self._passed = None
        name = process.name.replace("-", " ")
        self.events.append(f"{name} {PRINTED[incident.kind]} {incident.words}")
        return INTERRUPTIONS[incident.kind]

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        if of == "power":
            return self.unsynced
        if of == MAINTENANCE_STEP:
            wanted, self.maintenance = self.maintenance, None
            if wanted in others:
                return wanted
            self.maintenance = wanted
            return harmless
        fault = self.armed
        is_here = isinstance(fault, Fault) and (is_at(self._at, fault.step) or of == fault.step)
        if not isinstance(fault, Fault) or not is_here or fault.way not in others:
            return harmless
        self.armed = None
        self.events.append(f"{fault.way} at {fault.words}")
        return fault.way
