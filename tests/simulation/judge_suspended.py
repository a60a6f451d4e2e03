"""Laws of a table that was suspended, beside those of every table.

ends        each end repeats the one before, with its beginning and counted, or is the first by another fault; a fault
            that was decided on does not come back; what was asked before is not found again
decisions   no invalid record is left out that no operator has named; each request to drop a job drops one once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise

from state.journal import PATH as JOURNAL_PATH
from state.values.last_end import FaultReport, LastEnd
from streaming.core.jobs import jobs_after
from streaming.source.barriers.injecting.control_requests import DropAndTryAgain, TryAgain
from tests.simulation.judge_reading import plans_of
from tests.simulation.world import World


def violations_of_suspensions(world: World) -> Iterator[str]:
    """Of a world that has settled."""
    if world.setting.parks:
        return
    if not world.durable.restored:  # an older state has older ends, and knows less of what was decided
        yield from _ends(world)
        yield from _drops(world)
    yield from _left_out(world)


def _ends(world: World) -> Iterator[str]:
    ends = [end for end in _suspended(world) if end.fault is not None]
    for before, end in pairwise(ends):
        if end.requests_from < before.requests_from:
            yield f"requests are read from {end.requests_from} on, after {before.requests_from}: {_place(end)}"
        if not end.repeats(before):
            if (end.times, end.since_ms) != (1, end.at_ms):
                yield f"the first end by {_place(end)} counts {end.times}"
        elif end.since_ms != before.since_ms or not (
            end.times == before.times + 1
            or (end.times, end.owner, end.at_ms) == (before.times, before.owner, before.at_ms)
        ):
            yield f"an end by {_place(end)} counts {end.times}, behind {before.times}"
    faults = Counter(place for place, _ in groupby(map(_place, ends)))
    yield from (f"{place} suspends the table {count} times" for place, count in faults.items() if count > 1)


def _suspended(world: World) -> Iterator[LastEnd]:
    """All that the journal has ever held, in their order; each commit repeats the one before."""
    versions = world.durable.files.tables[JOURNAL_PATH]
    for text, _ in groupby(text for version in versions for text in version.info.values()):
        end = LastEnd.from_json(text)
        if end.is_suspended:
            yield end


def _place(end: LastEnd) -> str:
    assert isinstance(end.fault, FaultReport)
    return f"{end.fault.code} at {end.fault.where}"


def _left_out(world: World) -> Iterator[str]:
    asked = (request for request in world.durable.requests if isinstance(request, TryAgain))
    named = frozenset[tuple[int, int]]().union(*(request.skip_records for request in asked))
    skipped = {record for plan in plans_of(world) for record in plan.skipped}
    unnamed = sorted(skipped & world.setting.changelog.faulty - named)
    if unnamed:
        yield f"records are left out that nobody named: {unnamed}"


def _drops(world: World) -> Iterator[str]:
    asked = Counter(each.job for each in world.durable.requests if isinstance(each, DropAndTryAgain))
    dropped = Counter[str]()
    for before, plan in pairwise(plans_of(world)):
        jobs = [job.state for job in before.jobs]
        if plan.start != before.start:
            jobs = [job for job in jobs_after(before, world.setting.table).jobs if job.opened]
        left = {job.state.name for job in plan.jobs}
        dropped.update(job.name for job in jobs if job.name not in left)
    for name, count in dropped.items():
        if count > asked[name]:
            yield f"{name} was dropped {count} times, and {asked[name]} times by a request"
