"""Canaries: the protocol with one thing broken each. A simulation that finds nothing in them finds nothing at all.

They are broken from outside, by a port or a subclass in the place of the service's own; nothing in the service knows
of them. Numbers are those of the order of effects (`streaming.service.batches`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from state.journal import Journal
from streaming.service.batches import Batches
from tests.simulation import broken_driver as driver
from tests.simulation import broken_lanes as lanes
from tests.simulation.broker import Broker
from tests.simulation.crashes import ORDERS, play_on, twelve_epochs
from tests.simulation.handovers import hand_overs, one_batch
from tests.simulation.histories import play
from tests.simulation.instance import Instance
from tests.simulation.storage import MemoryStorage
from tests.simulation.world import Lasting

WITHIN_SEEDS = 200


@dataclass(frozen=True)
class Canary:
    """A protocol with one thing broken, in words and as a type."""

    step: str
    broken: str
    instance_type: type[Instance]
    rare: bool = False
    """Seeds meet it once in hundreds of histories; looked for among all hand-overs of a batch."""

    def __str__(self) -> str:
        return self.broken

    def sings(self) -> list[str]:
        """What is wrong where nothing goes wrong: nothing, or the canary would be dead from the start."""
        setting = twelve_epochs()
        beginning = Lasting.beginning(setting)
        return play_on(setting, ORDERS[0], beginning, instance_type=self.instance_type)[1]

    def dies(self) -> tuple[str, str] | None:
        """The first history that shows it, and what is wrong there; None if it lives."""
        histories = self._hand_overs() if self.rare else self._seeds()
        return next(((where, wrong[0]) for where, wrong in histories if wrong), None)

    def _seeds(self) -> Iterator[tuple[str, list[str]]]:
        for seed in range(WITHIN_SEEDS):
            yield f"seed {seed}", play(seed, self.instance_type).complaints

    def _hand_overs(self) -> Iterator[tuple[str, list[str]]]:
        for stop, wake, wrong in hand_overs(ORDERS[0], reversed(one_batch(ORDERS[0])), self.instance_type):
            yield f"hand-over {stop}, {wake}", wrong


def _breaking(
    *,
    broker: type[Broker] = Broker,
    storage: type[MemoryStorage] = MemoryStorage,
    journal: type[Journal] = Journal,
    batches: type[Batches] = Batches,
) -> type[Instance]:
    parts = {
        "broker_type": broker,
        "storage_type": storage,
        "journal_type": journal,
        "batches_type": batches,
    }
    return type("Broken", (Instance,), parts)


CANARIES = (
    Canary(
        "1 plan",
        "the plan is written behind the lanes",
        _breaking(journal=driver.KeepsPlan, batches=driver.WritesPlanLate),
    ),
    Canary("1 plan", "what is half done gets a new plan", _breaking(batches=driver.PlansAnew)),
    Canary("1 plan", "slices are read from the newest replica", _breaking(batches=driver.ReadsNewest)),
    Canary("1 plan", "the journal is written over a rival's", _breaking(storage=driver.BlindJournal)),
    Canary("2 lanes", "a producer is used again", _breaking(broker=lanes.KeepsProducers)),
    Canary("2 lanes", "the looks come before init", _breaking(broker=lanes.InitsBehindLooks)),
    Canary("2 lanes", "nobody looks for a successor", _breaking(storage=lanes.SeesNoSuccessor)),
    Canary("2 lanes", "nobody looks at the tails", _breaking(broker=lanes.LooksAtNoTail)),
    Canary("2 lanes", "known ends are believed", _breaking(broker=lanes.BelievesKnownEnds)),
    Canary("2 lanes", "the tails are read uncommitted", _breaking(broker=lanes.LooksAtUncommitted)),
    Canary("2 lanes", "an unknown outcome counts as done", _breaking(broker=lanes.TakesUnknownForDone)),
    Canary("2 lanes", "a batch is two transactions", _breaking(broker=lanes.CommitsHalves)),
    Canary("3 replicate", "the log is not bound to its epoch", _breaking(batches=driver.UnboundLog)),
    Canary("3 replicate", "the log is written over a rival's", _breaking(storage=driver.BlindLog)),
    Canary("4 progress", "a batch is marked done before its lanes", _breaking(batches=driver.MarksFirst)),
    Canary("4 progress", "progress comes before the log", _breaking(batches=driver.ProgressBeforeLog)),
    Canary("4 progress", "progress is not bound to its barrier", _breaking(batches=driver.ProgressTwice)),
    Canary("4 progress", "progress is written over a rival's", _breaking(storage=driver.BlindProgress)),
    Canary("5 mutations", "a restart forgets them", _breaking(batches=driver.ForgetsMutations)),
    Canary("take over", "the journal keeps its owner", _breaking(journal=driver.TakesNothingOver)),
    Canary(
        "take over",
        "progress is opened behind the log",
        _breaking(batches=driver.OpensProgressLast),
        rare=True,
    ),
    Canary(
        "take over",
        "a lost answer is taken for a successor",
        _breaking(batches=driver.TakesConflictForSuccessor),
    ),
)
