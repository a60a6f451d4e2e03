"""Records that outputs do not take: rows that a job has to stand before, and changes that are parked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from schemas.formats.registry import DEFAULT
from schemas.records import Add, Mutation, Resume, Throttle
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.crashes import VNODES
from tests.simulation.jobs import job_of, reading_topic, table_of
from tests.simulation.rows import AfterOnly
from tests.simulation.world import Setting

LONG = 1 << 40
"""A key from which on a row has 17 bytes as an INSERT, its key among them, and 25 as an UPDATE; others 7 and 10."""
RAISED_AFTER = 6
"""Barriers, until somebody raises what the outputs take."""


@cache
def long_rows() -> Setting:
    """Outputs that take no INSERT of a long key. Two jobs read, and stand before such a row until they are resumed."""
    return _setting(lambda barriers: 16 if barriers < RAISED_AFTER else None)


@cache
def long_changes() -> Setting:
    """Outputs that take no UPDATE of a long key, ever: one that is visible is parked."""
    return _setting(lambda barriers: 20)


@cache
def long_changes_of_two_lanes() -> Setting:
    """The long changes with a job that reads the topic: another lane may send it those too long for the first job."""
    return _setting(lambda barriers: 20, reads_topic=True)


def _setting(takes: Callable[[int], int | None], *, reads_topic: bool = False) -> Setting:
    table = table_of(VNODES)
    jobs = {
        "copy": job_of("copy", "copy", VNODES, rate_limit=2),
        "late": job_of("late", "late", VNODES, rate_limit=None),
    }
    if reads_topic:
        jobs["late"] = reading_topic(jobs["late"])
    upstream = Upstream(table, partitions=2)
    riding: dict[int, Mutation] = {
        0: Add(jobs["copy"].to_json()),
        1: Add(jobs["late"].to_json()),
        6: Resume(None),
        7: Resume(None),
    }
    for epoch in range(9):
        for key in range(6) if epoch == 0 else (epoch % 3, 3 + epoch % 3):
            upstream.put((key, epoch))
        for key in range(3) if epoch == 0 else ():
            upstream.put((LONG + key, epoch))
        if epoch >= 6:
            upstream.put((LONG + epoch - 6, epoch))
        upstream.barrier(riding.get(epoch))
    closing: tuple[Mutation | None, ...] = (Resume(None), Throttle("copy", None), None, None)
    for last in closing:
        upstream.barrier(last)
    changelog = Changelog(upstream, upstream_format=DEFAULT if reads_topic else AfterOnly())
    # A simulated compaction takes its rows from the changelog, also those that were parked.
    return Setting(
        table, changelog, (), jobs, lanes=(2, 1), compactions=False, closing=len(closing), takes=takes
    )
