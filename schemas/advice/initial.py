"""Errors of a table that starts from another table."""

from __future__ import annotations

from schemas.advice.advice import Advice
from schemas.codes import Code

_ANOTHER_VERSION = (
    "correct the table, name its new version, and begin with a new state folder; nothing was sent"
)
INITIAL = {
    Code.INITIAL_TABLE_MISSING: Advice(
        "a Delta table there, as initial.delta.uri says",
        "correct the URI, or see that this user may read it; nothing was made",
    ),
    Code.INITIAL_VERSION_MISSING: Advice(
        "version {version}, as initial.delta.version says",
        "name a version that the table still has (DESCRIBE HISTORY), with its offsets; nothing was made",
    ),
    Code.INITIAL_TABLE_MISFIT: Advice(
        "every declared column, with its type",
        "correct the declaration, or write the table with these columns and name its new version; nothing was made",
    ),
    Code.INITIAL_TABLE_UNREADABLE: Advice(
        "every file of that version to be there, and Parquet",
        "see that no VACUUM takes them and that this user may read them; what was copied is kept: start again",
    ),
    Code.INITIAL_KEY_NULL: Advice("a value in every column of the primary key", _ANOTHER_VERSION),
    Code.INITIAL_KEY_DUPLICATE: Advice("one row a primary key", _ANOTHER_VERSION),
    Code.INITIAL_OFFSETS_MISFIT: Advice(
        "one offset a partition, none behind the partition's end: {ends}",
        "correct initial.delta.offsets; nothing was made",
    ),
    Code.INITIAL_CHANGED: Advice(
        "{start}, as the state says",
        "restore initial, or give the table that starts elsewhere a new state folder and new outputs",
    ),
    Code.INITIAL_NOT_READ: Advice(
        "a service that reads the table of initial.postgres now",
        "see `backfill status`: a table that is there needs no pace",
    ),
    Code.INITIAL_READ_ONCE: Advice(
        "a table whose beginning can be read again",
        "compare `backfill consume --fold` of the output with a SELECT while nothing is written",
    ),
}
