"""Settings of histories whose table starts from its database: chunks are read beside the changes of its connector."""

from __future__ import annotations

import random

from schemas.job import JobDefinition
from schemas.records import Add, Resume, Throttle
from schemas.settings.limits import Limits
from schemas.table import TableSchema
from tests.simulation.beside import BesideChangelog
from tests.simulation.connector import FromConnector, WholeFromConnector
from tests.simulation.database import KEYS, DatabaseUpstream, table_of_database
from tests.simulation.initial import MemorySource
from tests.simulation.mutations import mutations
from tests.simulation.world import Setting

CLOSING = (None, Resume(None), Throttle("copy", None), Throttle("late", None), None, None)
"""The first releases what is left of the table; then every job can finish."""

WHOLE, FORMS, LONG, SLOW, FAULTY = 0.3, 0.3, 1 / 3, 0.6, 0.2
"""Of all: those whose events have the rows before, whose outputs have another form, whose intervals go in parts, whose
chunks come as barriers do, and those with invalid records."""

PACED_SEED = 9
"""Of the settings that are not random."""


def draw_setting(rng: random.Random) -> Setting:
    """Three to seven intervals, before and while the table is read, and behind that."""
    vnodes, partitions = rng.choice([2, 3, 4]), rng.randint(1, 3)
    table = table_of_database(vnodes)
    bounds = sorted(rng.sample(range(KEYS), rng.choice([0, 0, 1, 2])))
    intervals, form = rng.randint(3, 7), rng.choice(("upsert", "debezium")) if rng.random() < FORMS else None
    upstream = DatabaseUpstream(
        table,
        partitions,
        random.Random(rng.random()),
        bounds=[(bound,) for bound in bounds],
        pace=max(rng.choice([1, 1, 2]), -(-(KEYS - 1) // intervals)) if rng.random() < SLOW else None,
        tombstones=form != "upsert",  # or a delete comes out twice, as it may (docs/contract.md#the-law)
    )
    upstream.live(rng.randint(0, 40))
    upstream.begin()
    jobs = {
        output: job_of(table, name, output, rng.choice([1, 2, 4, None]), rng.choice([None, "n >= 1"]), form)
        for name, output in (("copy", "copy"), ("late", "late"), ("late", "later"))
    }
    riding = mutations(list(jobs.values()), rng)
    faulty: list[tuple[int, int]] = []
    is_faulty = rng.random() < FAULTY
    for _ in range(intervals):
        upstream.live(rng.choice([0, 5, 15, 30]))
        if is_faulty and rng.random() < 0.5:
            faulty.append(_spoil(upstream, rng))
        upstream.barrier(next(riding) if rng.random() < 0.4 else None)
    return _setting(
        upstream,
        jobs,
        configured=(jobs["copy"],) if rng.random() < 0.8 else (),
        faulty=frozenset(faulty),
        whole=rng.random() < WHOLE,
        lanes=tuple(rng.choice([1, 2, 2]) for _ in range(4)),
        compactions=rng.random() < 0.5,
        limits=_limits(rng),
    )


def small_reading() -> Setting:
    """A job from the second barrier on, and four chunks, read one after another while much goes on; maintenance."""
    return _paced(moves=14)


def quiet_reading() -> Setting:
    """Nothing is done in the table before it is there, and nothing reads it before."""
    return _paced(moves=0, pace=None, added_with=6)


def reading_that_is_over_early() -> Setting:
    """All chunks are read at once, and a job reads long after they were released."""
    return _paced(moves=6, pace=None, rate_limit=1)


def reading_a_topic_that_gains_partitions() -> Setting:
    """A partition is added while the table is read."""
    return _paced(moves=6, gains_with=2)


def _paced(
    moves: int,
    *,
    pace: int | None = 1,
    rate_limit: int = 2,
    added_with: int = 1,
    gains_with: int | None = None,
) -> Setting:
    table = table_of_database(4)
    upstream = DatabaseUpstream(table, 2, random.Random(PACED_SEED), bounds=[(3,)], pace=pace)
    upstream.live(60)
    if not moves:
        upstream.settle()
    upstream.begin()
    job = job_of(table, "copy", "copy", rate_limit=rate_limit)
    for number in range(8):
        upstream.live(moves)
        upstream.gain(int(number == gains_with))
        upstream.barrier(Add(job.to_json()) if number == added_with else None)
    return _setting(upstream, {"copy": job})


def _setting(
    upstream: DatabaseUpstream,
    jobs: dict[str, JobDefinition],
    *,
    configured: tuple[JobDefinition, ...] = (),
    faulty: frozenset[tuple[int, int]] = frozenset(),
    whole: bool = False,
    lanes: tuple[int, ...] = (2,),
    compactions: bool = True,
    limits: Limits = Limits(),  # noqa: B008 (a value)
) -> Setting:
    upstream.settle()
    for last in CLOSING:
        upstream.barrier(last)
    format_ = WholeFromConnector() if whole else FromConnector()
    initial = MemorySource(upstream.begins, upstream.content)
    changelog = BesideChangelog(upstream, faulty, format_, initial=initial)
    return Setting(
        upstream.table, changelog, configured, jobs, lanes, compactions, closing=len(CLOSING), limits=limits
    )


def job_of(
    table: TableSchema,
    name: str,
    output: str,
    rate_limit: int | None = None,
    condition: str | None = None,
    form: str | None = None,
) -> JobDefinition:
    """A job of two partitions; with a form its barriers stand beside the data."""
    declaration: dict[str, object] = {"name": name, "output": output, "filter": condition}
    declaration |= {"output_partitions": 2, "rate_limit": rate_limit}
    if form is not None:
        declaration |= {"format": form, "barrier_topic": f"{output}.barriers"}
    return JobDefinition.declare(declaration, table)


def _limits(rng: random.Random) -> Limits:
    """Limits with which, while nothing reads yet, longer intervals go in parts, and release nothing."""
    if rng.random() >= LONG:
        return Limits()
    return Limits(interval_records=rng.choice([1, 3, 6]), part_records=rng.choice([1, 2]))


def _spoil(upstream: DatabaseUpstream, rng: random.Random) -> tuple[int, int]:
    """A record that no reader can read, and of no table."""
    number = rng.randrange(len(upstream.topic.partitions))
    return upstream.spoil(number, rng.choice([b"", b"?"]))
