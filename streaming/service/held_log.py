"""The log lines of partitions that an open transaction holds back: one where it begins to last, one where it is over.

With barriers in the data the service stops there, and its condition says so. With barriers beside the data it goes on,
ready, without the records that are held: these two lines, status, page and `backfill_upstream_held_seconds` tell.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import structlog

from schemas.error_table import TABLE
from schemas.errors import Code
from streaming.core.health import HealthFacts, StuckPartition, lasting_held

log = structlog.get_logger(__name__)


class HeldRecordsLog:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int], StuckPartition] = {}

    def update(self, facts: HealthFacts, now_s: float) -> None:
        """Log what has begun to last, or is over, since the last call."""
        lasting = {(each.partition, each.stable): each for each in lasting_held(facts, now_s)}
        with self._lock:
            known, self._known = self._known, lasting
        for place, held in lasting.items():
            if place not in known:
                self._log_begin(facts.upstream, held, now_s)
        for place, held in known.items():
            if place not in lasting:
                lasted_s = round(now_s - held.since_s)
                log.info("records_held_over", where=_place(facts.upstream, held), lasted_s=lasted_s)

    def _log_begin(self, upstream: str, held: StuckPartition, now_s: float) -> None:
        held_s = now_s - held.since_s
        log.warning(
            "records_held",
            where=_place(upstream, held),
            since=(datetime.now(UTC) - timedelta(seconds=held_s)).isoformat(timespec="seconds"),
            late_s=round(held_s),
            records=held.high - held.stable,
            next_step=TABLE[Code.BARRIER_STALLED].next_step,
        )


def _place(upstream: str, held: StuckPartition) -> str:
    return f"{upstream}-{held.partition}@{held.stable}"
