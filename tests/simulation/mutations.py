"""The control requests that ride on the barriers of random histories."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from schemas.job import JobDefinition
from schemas.records import Add, Drop, Lanes, Mutation, Pause, Resume, Throttle


def mutations(jobs: Sequence[JobDefinition], rng: random.Random) -> Iterator[Mutation]:
    """One after another without end; most of them add one of the jobs."""
    adds: list[Mutation] = [Add(job.to_json()) for job in jobs]
    others: list[Mutation] = [
        Pause(None),
        Resume(None),
        Throttle("copy", 0),
        Throttle("copy", 2),
        Drop("late"),
    ]
    while True:
        yield rng.choice([*adds, *adds, *others])


def next_mutation(
    riding: Iterator[Mutation], rng: random.Random, rescales: random.Random | None
) -> Mutation | None:
    """The next barrier's mutation, if any; with `rescales` each barrier without one gets a change of lanes."""
    if rng.random() < 0.4:
        return next(riding)
    return None if rescales is None else Lanes(rescales.choice([1, 2, 3, 4]))
