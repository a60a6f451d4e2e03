"""Cleaning all tables of the state, each by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog
from deltalake.exceptions import DeltaError

from schemas.errors import BackfillError
from schemas.table import TableSchema
from state.initial.chunks import CHUNKS_PATH, WAITING_PATH
from state.journal import PATH as JOURNAL_PATH
from state.journal import Journal
from state.maintenance.chunks import clean_chunks
from state.maintenance.cleaning import Cleaned, clean
from state.progress_table import PATH as PROGRESS_PATH
from state.replica import BASE_PATH, LOG_PATH
from state.storage import Storage
from state.values.plan import BatchPlan

STATE_TABLES = (JOURNAL_PATH, PROGRESS_PATH, LOG_PATH, BASE_PATH, WAITING_PATH)
_TROUBLE = (BackfillError, DeltaError, OSError)

log = structlog.get_logger()


def clean_state(
    storage: Storage,
    table: TableSchema,
    open_since_ms: Mapping[str, int],
    is_over: Callable[[], bool] = lambda: False,
) -> Cleaned:
    """Clean every table; trouble with one is logged and does not keep the others from it.

    `open_since_ms`: of a table, when the work began that has files for it to commit, or else when this round began: an
    instance that is paused in it, and goes on hours later, must not take a successor's files for left-overs. The
    versions that the journal's plan names stay: an instance that carries it out again reads them, and one that was
    taken over from may have committed since. Once `is_over`, the rest is left to the next round.
    Raises: BackfillError, DeltaError or OSError, the last one of several, once all tables had their turn.
    """
    done, trouble = Cleaned(), None
    for path in (*STATE_TABLES, CHUNKS_PATH):
        try:
            done |= _cleaned(storage, table, path, open_since_ms.get(path), is_over)
        except _TROUBLE as failure:
            log.warning("a table could not be cleaned", table=path, error=type(failure).__name__)
            trouble = failure
    if trouble is not None:
        raise trouble
    return done


def _cleaned(
    storage: Storage, table: TableSchema, path: str, open_since_ms: int | None, is_over: Callable[[], bool]
) -> Cleaned:
    if path in (CHUNKS_PATH, WAITING_PATH) and not storage.exists(path):
        return Cleaned()  # of a table that did not start from a database
    if path == CHUNKS_PATH:
        plan = _plan(storage, table)
        named = [] if plan is None or plan.reading is None else sum(plan.reading.files, ())
        return Cleaned(clean_chunks(storage, named, open_since_ms=open_since_ms, is_over=is_over))
    pinned = _pinned(storage, table, path)
    return clean(storage, path, pinned=pinned, open_since_ms=open_since_ms, is_over=is_over)


def _pinned(storage: Storage, table: TableSchema, path: str) -> Sequence[int]:
    plan = _plan(storage, table) if path in (LOG_PATH, BASE_PATH, WAITING_PATH) else None
    if plan is None:
        return ()
    if path == WAITING_PATH:
        return [] if plan.reading is None else [plan.reading.waiting]
    return [plan.replica.log if path == LOG_PATH else plan.replica.base]


def _plan(storage: Storage, table: TableSchema) -> BatchPlan | None:
    storage.delta(JOURNAL_PATH)  # which `Journal` would create
    entry = Journal(storage, table).current
    return None if entry is None else entry.plan
