"""Cleaning all tables of the state, each by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog
from deltalake.exceptions import DeltaError

from schemas.errors import BackfillError
from schemas.table import TableSchema
from state.journal import PATH as JOURNAL_PATH
from state.journal import Journal
from state.maintenance.cleaning import Cleaned, clean
from state.progress_table import PATH as PROGRESS_PATH
from state.replica import BASE_PATH, LOG_PATH
from state.storage import Storage

STATE_TABLES = (JOURNAL_PATH, PROGRESS_PATH, LOG_PATH, BASE_PATH)
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
    versions that the journal's plan names stay: whoever carries it out again reads them, and an instance that was
    taken over may have committed since. Once `is_over`, the rest is left to the next round.
    Raises: BackfillError, DeltaError or OSError, the last one of several, once all tables had their turn.
    """
    done, trouble = Cleaned(), None
    for path in STATE_TABLES:
        try:
            pinned = _pinned(storage, table, path)
            done |= clean(
                storage, path, pinned=pinned, open_since_ms=open_since_ms.get(path), is_over=is_over
            )
        except _TROUBLE as failure:
            log.warning("a table could not be cleaned", table=path, error=type(failure).__name__)
            trouble = failure
    if trouble is not None:
        raise trouble
    return done


def _pinned(storage: Storage, table: TableSchema, path: str) -> Sequence[int]:
    if path not in (LOG_PATH, BASE_PATH):
        return ()
    storage.delta(JOURNAL_PATH)  # which `Journal` would create
    entry = Journal(storage, table).current
    if entry is None or entry.plan is None:
        return ()
    version = entry.plan.replica
    return [version.log if path == LOG_PATH else version.base]
