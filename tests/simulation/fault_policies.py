"""Who makes the choices: a policy without faults, and one that draws everything from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.scheduler import Strand


@dataclass(frozen=True)
class Order:
    """Who goes first where nothing else decides. By itself: the oldest strand, and the world's own last."""

    last_lane_first: bool = False
    markers_first: bool = False
    """Else they are as late as can be."""

    def __str__(self) -> str:
        lanes, markers = (
            "last" if self.last_lane_first else "first",
            "early" if self.markers_first else "late",
        )
        return f"{lanes} lane first, {markers} markers"


class NoFaults:
    """Nothing goes wrong."""

    def __init__(self, order: Order = Order()) -> None:
        self.order = order

    def next(self, ready: Sequence[Strand]) -> Strand:
        if self.order.markers_first and ready[0].name == "broker":
            return ready[0]
        own = [strand for strand in ready if strand.process.name != "world"]
        return (own or ready)[-1 if own and self.order.last_lane_first else 0]

    def interruption(self, strand: Strand) -> str:
        return "nothing"

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        return harmless


@dataclass(frozen=True)
class Odds:
    """Probabilities of faults, each at a step where it can happen. `faults` bounds deaths and pauses together."""

    death: float
    pause: float
    effect: float
    task: float
    compactor: float
    faults: int
    world: float
    """Weight of the world's own strands, against 1 of the others."""

    @classmethod
    def draw(cls, rng: random.Random) -> Odds:
        """Some kinds of fault are left out of some histories: where one kind abounds, others are not reached."""
        return cls(
            death=rng.choice([0.0, 0.01, 0.03]),
            pause=rng.choice([0.0, 0.01, 0.03]),
            effect=rng.choice([0.0, 0.03, 0.1, 0.3]),
            task=rng.choice([0.0, 0.1, 0.3]),
            compactor=rng.choice([0.0, 0.2, 0.5]),
            faults=rng.randint(1, 5),
            world=rng.choice([0.05, 0.3, 1.0]),
        )


_NO_FAULTS = ("arrival", "power", "moments", "rows of a chunk", "a chunk")
"""Choices of which each is as good as another, also when nothing goes wrong any more."""


class Seeded:
    """Everything by one random generator. After `heal` nothing goes wrong any more."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.odds = rng, Odds.draw(rng)
        self.faults = 0
        self.healed = False

    def heal(self) -> None:
        self.healed = True

    def next(self, ready: Sequence[Strand]) -> Strand:
        weights = [self.odds.world if strand.process.name == "world" else 1.0 for strand in ready]
        return self.rng.choices(ready, weights)[0]

    def interruption(self, strand: Strand) -> str:
        if self.healed or strand.process.name == "world" or self.faults >= self.odds.faults:
            return "nothing"
        drawn = self.rng.random()
        if drawn < self.odds.death:
            self.faults += 1
            return "death"
        if drawn < self.odds.death + self.odds.pause:
            self.faults += 1
            return "pause"
        return "nothing"

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        if of in _NO_FAULTS:
            return self.rng.choice((harmless, *others))
        if self.healed or not others:
            return harmless
        odds = self.odds
        likely = (
            odds.task if of.startswith("task") else odds.compactor if of == "maintenance" else odds.effect
        )
        return self.rng.choice(others) if self.rng.random() < likely else harmless
