"""Whatever comes between whatever: the law holds at every barrier.

Hypothesis writes plays: changes, barriers with mutations, partitions that deliver late, barriers that come twice,
batches with any budget, folds, other numbers of lanes; on tables with any key, for two jobs with any filter and
projection. They are played on the service without Spark and Kafka, and the judge has the last word.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from schemas.job import JobDefinition
from schemas.position import Key
from schemas.records import Add, Mutation, Pause, Resume, Row, Throttle
from schemas.table import TableSchema, declare
from tests.kit.histories import KEY_DOMAINS
from tests.kit.pure import ALL, PureService
from tests.kit.upstream import Upstream

EXAMPLES = 150 if settings.get_current_profile_name() == "ci" else 30
MOST_KEYS = 24
FILTERS = [None, None, "n >= 1", "n IS NULL OR n = 2", "v LIKE 'a%' AND NOT n = 0"]
HOLDS: list[Mutation] = [Pause("copy"), Pause(None), Throttle("copy", 0)]
RELEASES: list[Mutation] = [Resume("copy"), Resume(None), Throttle("copy", None)]


@dataclass(frozen=True)
class Move:
    """One interval upstream, and what the service does once its barrier is there.

    A row that is live as it is written here is deleted, any other is inserted or updated. `late` is a partition
    that does not deliver the barrier yet, `fold_at` an earlier plan at whose end the base is to stand.
    """

    rows: list[Row]
    mutation: Mutation | None
    repeated: bool
    late: int | None
    budget_rows: int
    max_records: int
    lanes: int
    fold_at: int | None


@dataclass(frozen=True)
class Play:
    table: TableSchema
    jobs: tuple[JobDefinition, JobDefinition]
    partitions: int
    exact_below: int
    first_rows: list[Row]
    moves: list[Move]


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
    columns = draw(st.none() | st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
    declaration = {
        "name": name,
        "output": f"out-{name}",
        "columns": columns,
        "filter": draw(st.sampled_from(FILTERS)),
        "output_partitions": draw(st.sampled_from([n for n in (1, 2, 4) if n <= table.vnode_count])),
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
def plays(draw: st.DrawFn) -> Play:
    table = draw(tables())
    rows = draw(rows_of(table))
    jobs = draw(definitions(table, "copy")), draw(definitions(table, "second"))
    partitions = draw(st.integers(1, 3))
    some_rows = st.lists(st.sampled_from(rows), max_size=8)
    mutations: list[Mutation] = [*HOLDS, *RELEASES, *RELEASES, Add(jobs[1].to_json())]
    moves = st.builds(
        Move,
        rows=some_rows,
        mutation=st.sampled_from([*([None] * 2 * len(mutations)), *mutations]),
        repeated=st.booleans(),
        late=st.sampled_from([None, None, *range(partitions)]),
        budget_rows=st.sampled_from([0, 1, 1, 2, 3, 5]),
        max_records=st.sampled_from([1, 10, ALL]),
        lanes=st.sampled_from([n for n in (1, 2, 4) if jobs[0].output_partitions % n == 0]),
        fold_at=st.sampled_from([None, None, None, -1, -2]),
    )
    return Play(
        table,
        jobs,
        partitions,
        draw(st.sampled_from([0, 1_000])),
        rows[:: draw(st.sampled_from([3, 3, 6, 1000]))],
        draw(st.lists(moves, min_size=6, max_size=16)),
    )


def perform(play: Play, folder: Path) -> PureService:
    """The service after the play, everything delivered, released and read to its end."""
    up = Upstream(play.table, play.partitions)
    service = PureService(play.table, up.topic, folder, play.jobs[:1], exact_below=play.exact_below)
    up.put_all(play.first_rows)
    service.step(up)
    for move in play.moves:
        _write(up, move)
        for number in range(play.partitions):
            service.read(number, until=up.barriers[-2] if number == move.late else None)
        if all(job.definition.output_partitions % move.lanes == 0 for job in service.known):
            service.lanes = move.lanes
        service.max_records = move.max_records
        service.run(move.budget_rows)
        if move.fold_at is not None:
            service.fold(service.plans[max(move.fold_at, -len(service.plans))].epoch)
    for mutation in (Resume(None), Throttle("copy", None), None, None):
        service.step(up, mutation=mutation)
    return service


def _write(up: Upstream, move: Move) -> None:
    for row in move.rows:
        key = up.table.key_of(row)
        if up.rows.get(key) == row:
            up.delete(*key)
        else:
            up.put(row)
    up.barrier(move.mutation)
    if move.repeated:
        up.repeat_barrier(range(0, len(up.topic.partitions), 2))


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(plays())
def test_the_law_holds_at_every_barrier_of_every_interleaving(play: Play) -> None:
    with tempfile.TemporaryDirectory() as folder:
        service = perform(play, Path(folder))
        for output in service.outputs:
            report = service.judged(output, complete=True)
            assert report.clean, (output, report.findings[:3])
            assert report.behind == 0
        slices = [item for plan in service.plans for job in plan.jobs for item in job.slices]
        event(f"slices that end inside a vnode: {min(sum(s.upto is not None for s in slices), 5)}")
