"""Whatever comes between whatever, on any table: the law holds at every barrier.

Hypothesis writes plays: changes, barriers with mutations, barriers that come twice; on tables with any key, for two
jobs with any filter and projection. They are played on the simulation, with crashes, rivals and compactions by a seed.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from schemas.job import JobDefinition
from schemas.kinds.projection import plain
from schemas.position import Key
from schemas.records import Add, Lanes, Mutation, Pause, Resume, Row, Throttle
from schemas.settings.limits import Limits
from schemas.table import TableSchema, declare
from tests.kit import masks
from tests.kit.histories import KEY_DOMAINS
from tests.kit.upstream import Upstream
from tests.kit.values import examples
from tests.simulation.changelog import Changelog
from tests.simulation.histories import played
from tests.simulation.world import Setting

EXAMPLES = examples(30)
MOST_KEYS = 24
FILTERS = [None, None, "n >= 1", "n IS NULL OR n = 2", "v LIKE 'a%' AND NOT n = 0"]
EXTENTS: list[dict[str, str]] = [
    {},
    {},
    {},
    {"until": "complete"},
    {"format": "upsert"},
    {"format": "upsert", "from": "now"},
]
HOLDS: list[Mutation] = [Pause("copy"), Pause(None), Throttle("copy", 0)]
RELEASES: list[Mutation] = [Resume("copy"), Resume(None), Throttle("copy", None), Throttle("copy", 3)]
CLOSING = (Resume(None), Throttle("copy", None), Throttle("second", None), None, None)


@dataclass(frozen=True)
class Interval:
    """A row that is live as it is written here is deleted, any other is inserted or updated."""

    rows: list[Row]
    mutation: Mutation | None
    repeated: bool


@dataclass(frozen=True)
class Script:
    table: TableSchema
    jobs: tuple[JobDefinition, JobDefinition]
    partitions: int
    lanes: tuple[int, ...]
    limits: Limits
    first_rows: list[Row]
    intervals: list[Interval]
    seed: int


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    columns = draw(st.sampled_from([1, 2, 2, 3]))
    kinds = draw(st.lists(st.sampled_from(sorted(KEY_DOMAINS)), min_size=columns, max_size=columns))
    key = [f"k{number}" for number in range(len(kinds))]
    return declare(
        {
            "name": "t",
            "columns": dict(zip(key, kinds, strict=True)) | {"n": "int", "v": "string"},
            "primary_key": draw(st.permutations(key)),
            "distribution_key": draw(st.lists(st.sampled_from(key), min_size=1, unique=True)),
            "vnode_count": draw(st.sampled_from([2, 2, 3, 8])),
        }
    )


@st.composite
def definitions(draw: st.DrawFn, table: TableSchema, name: str) -> JobDefinition:
    names = draw(st.none() | st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
    chance = draw(st.randoms(use_true_random=False))
    columns = plain(table.column_names) if names is None else masks.projected(names, table, chance)
    key = masks.another_key(columns, table, chance) if draw(st.booleans()) else ()
    declaration = {
        "name": name,
        "output": f"out-{name}",
        **({} if names is None else masks.keys_of(columns)),
        "key": list(key) or None,
        "filter": draw(st.sampled_from(FILTERS)),
        "output_partitions": draw(st.sampled_from([n for n in (1, 2, 4) if n <= table.vnode_count])),
        "rate_limit": draw(st.sampled_from([0, 1, 1, 2, 5, None])),
        "paused": draw(st.sampled_from([False, False, False, True])),
        **draw(st.sampled_from(EXTENTS)),
    }
    return JobDefinition.declare(declaration, table)


@st.composite
def rows_of(draw: st.DrawFn, table: TableSchema) -> list[Row]:
    """Three rows for each of some keys, those of a key one after another."""
    keys: list[Key] = list(
        itertools.product(*(KEY_DOMAINS[str(column.type)] for column in table.key_columns))
    )
    chosen = draw(st.randoms(use_true_random=False)).sample(keys, min(len(keys), MOST_KEYS))
    return [_row(table, key, n, v) for key in chosen for n, v in ((0, "a"), (2, "ab"), (None, None))]


def _row(table: TableSchema, key: Key, n: int | None, v: str | None) -> Row:
    values: dict[str, Any] = dict(zip(table.primary_key, key, strict=True)) | {"n": n, "v": v}
    return tuple(values[name] for name in table.column_names)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    table = draw(tables())
    rows = draw(rows_of(table))
    jobs = draw(definitions(table, "copy")), draw(definitions(table, "second"))
    rescales = map(Lanes, (1, 2, 3, 4))
    mutations: list[Mutation] = [*HOLDS, *RELEASES, *RELEASES, *rescales, Add(jobs[1].to_json())]
    intervals = st.builds(
        Interval,
        rows=st.lists(st.sampled_from(rows), max_size=8),
        mutation=st.sampled_from([*([None] * 2 * len(mutations)), *mutations]),
        repeated=st.booleans(),
    )
    lanes = [n for n in (1, 2, 4) if not any(job.output_partitions % n for job in jobs)]
    return Script(
        table=table,
        jobs=jobs,
        partitions=draw(st.integers(1, 3)),
        lanes=tuple(draw(st.lists(st.sampled_from(lanes), min_size=1, max_size=4))),
        limits=draw(st.sampled_from([Limits(), Limits(interval_records=3, part_records=2)])),
        first_rows=rows[:: draw(st.sampled_from([3, 3, 6, 1000]))],
        intervals=draw(st.lists(intervals, min_size=3, max_size=8)),
        seed=draw(st.integers(0, 1 << 32)),
    )


def setting_of(script: Script) -> Setting:
    upstream = Upstream(script.table, script.partitions)
    upstream.put_all(script.first_rows)
    upstream.barrier()
    for interval in script.intervals:
        _write(upstream, interval)
    for last in CLOSING:
        upstream.barrier(last)
    return Setting(
        script.table,
        Changelog(upstream),
        script.jobs[:1],
        {job.output: job for job in script.jobs},
        lanes=script.lanes,
        compactions=True,
        closing=len(CLOSING),
        limits=script.limits,
    )


def _write(upstream: Upstream, interval: Interval) -> None:
    for row in interval.rows:
        key = upstream.table.key_of(row)
        if upstream.rows.get(key) == row:
            upstream.delete(*key)
        else:
            upstream.put(row)
    upstream.barrier(interval.mutation)
    if interval.repeated:
        upstream.repeat_barrier(range(len(upstream.topic.partitions)))


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(scripts())
def test_the_law_holds_at_every_barrier_of_every_interleaving(script: Script) -> None:
    verdict = played(setting_of(script), random.Random(script.seed))
    assert not verdict.violations, verdict.violations[:3]
    event(f"starts: {min(verdict.starts, 5)}")
