"""Upstreams whose rows have no identity: random histories in which anything goes wrong; nothing is kept of a row."""

from __future__ import annotations

import random

import pytest

from schemas.formats.append import AppendFormat
from schemas.job import JobDefinition
from schemas.records import Add, Drop, Mutation, Pause, Resume, Throttle
from schemas.settings.limits import Limits
from schemas.table import declare
from tests.kit.upstream import RowsUpstream
from tests.kit.values import examples
from tests.simulation.beside import BesideChangelog
from tests.simulation.changelog import Changelog
from tests.simulation.histories import CLOSING, played
from tests.simulation.world import Setting

SEEDS = examples(60)
TABLE = declare({"name": "t", "columns": {"id": "bigint", "n": "int"}}, has_key=False)
KEYS = (None, b"", b"a", b"b", b"\xff")


def job_of(rng: random.Random, name: str, output: str) -> JobDefinition:
    """Through a filter and a projection, or whole, with barriers in the output or beside it."""
    declared = {
        "name": name,
        "output": output,
        "read": "topic",
        "format": "append",
        "encoding": rng.choice(["json", "json-schema"]),
        "filter": rng.choice([None, "n >= 1"]),
        "columns": rng.choice([["id", "n"], ["n"], ["n", "id"]]),
        "rate_limit": rng.choice([1, 2, 4, None]),
        "barrier_topic": rng.choice([output, None]),
    }
    return JobDefinition.declare(declared, TABLE)


def draw_setting(rng: random.Random) -> Setting:
    partitions = rng.randint(1, 3)
    jobs = {output: job_of(rng, name, output) for name, output in (("copy", "copy"), ("late", "late"))}
    upstream, faulty = RowsUpstream(TABLE, partitions), list[tuple[int, int]]()
    mutations: list[Mutation] = [Add(jobs["late"].to_json()), Pause(None), Resume(None)]
    mutations += [Throttle("copy", 0), Throttle("copy", 2), Drop("late")]
    vandal = rng.random() < 1 / 3
    for interval in range(rng.randint(3, 6)):
        if interval and rng.random() < 0.2:
            upstream.gain()
            partitions += 1
        for _ in range(rng.choice([0, 1, 3, 6])):
            key, home = rng.choice(KEYS), rng.randrange(partitions)
            match rng.choice(["row", "row", "row", "nothing", "fault" if vandal else "row"]):
                case "row":
                    upstream.append((rng.choice([1, 2]), rng.choice([None, 0, 1])), key, home)
                case "nothing":
                    upstream.append_nothing(key, home)
                case "fault":
                    upstream.topic.append(home, key, b"?")
                    faulty.append((home, upstream.topic.partitions[home][-1].offset))
        upstream.barrier(rng.choice(mutations) if rng.random() < 0.4 else None)
    for last in CLOSING:
        upstream.barrier(last)
    changelog = rng.choice([Changelog, BesideChangelog])
    return Setting(
        TABLE,
        changelog(upstream, frozenset(faulty), AppendFormat()),
        (jobs["copy"],) if rng.random() < 0.8 else (),
        jobs,
        lanes=tuple(min(lanes, partitions) for lanes in rng.choices([1, 2, 3], k=4)),
        compactions=True,
        closing=len(CLOSING),
        limits=rng.choice([Limits(), Limits(interval_records=3, part_records=1)]),
    )


# 74: a former instance finds that the output has gained partitions, by its successor.
@pytest.mark.parametrize("seed", [*range(SEEDS), 74])
def test_a_random_history_keeps_the_law(seed: int) -> None:
    rng = random.Random(seed)
    verdict = played(draw_setting(rng), rng, seed)
    assert not verdict.violations, verdict.violations[:3]


def test_the_histories_go_wrong_often_enough() -> None:
    found = []
    for seed in range(20):
        rng = random.Random(seed)
        found.append(played(draw_setting(rng), rng, seed))
    assert sum(verdict.faults for verdict in found) > 10
    assert sum(verdict.starts for verdict in found) > len(found)
