"""Deletion of files that no version of a table needs: data, commits before a checkpoint, left-overs, rows of chunks.

Delta's own vacuum commits to the table that it cleans, and a commit of an instance that was fenced without noticing
would fence the current owner; so vacuum only lists what it would delete. Delta's cleaning of its log after each commit
is off as well: it lists the log each time, and does not spare old versions that a plan names.

Only live files and those younger than the retention are listed, so a round costs the same after months.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter

import structlog
from deltalake.exceptions import DeltaError
from pyarrow import fs

from schemas.errors import BackfillError
from schemas.table import TableSchema
from state.initial.chunks import CHUNKS_PATH, WAITING_PATH
from state.journal import PATH as JOURNAL_PATH
from state.journal import Journal
from state.ledger import files_of
from state.progress_table import PATH as PROGRESS_PATH
from state.replica import BASE_PATH, LOG_PATH
from state.small_files import TablePins
from state.storage import Storage, now_ms
from state.values.plan import BatchPlan

_LOG = "_delta_log"
_OF_VERSION = re.compile(r"([0-9]{20})\.(?:json|crc|checkpoint(?:\..+)?\.parquet)")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet")
_UNFINISHED = re.compile(r".*(?:\.tmp|#[0-9]+)")
"""A commit that was being written when its process was killed."""
_ASKED_AT_ONCE = 1_000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Files that were deleted: data, and commits and checkpoints of the log."""

    data: int = 0
    log: int = 0

    def __or__(self, other: Cleaned) -> Cleaned:
        return Cleaned(self.data + other.data, self.log + other.log)


def clean_table(
    storage: Storage,
    path: str,
    *,
    pinned: Sequence[int] = (),
    held: Sequence[int] = (),
    open_since_ms: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Cleaned:
    """Delete what the table at `path` needed longer ago than its retention. Others may commit meanwhile.

    `pinned` are versions that stay readable: those of a plan that may be repeated. `held` stay readable, too, for weeks
    if need be: of them a checkpoint and the commits behind it stay, and not all commits since. `open_since_ms` is the
    start of the oldest work that has not committed its files yet, by default now: files older than that by the
    retention are left-overs, and no others. Once `is_over`, nothing more is deleted.
    Raises: TableNotFoundError and DeltaError of deltalake, OSError. A file that is gone already is no error.
    """
    since_ms = now_ms() if open_since_ms is None else open_since_ms
    data = delete_files(storage, _dead_data(storage, path, pinned, held, since_ms), is_over)
    return Cleaned(data, delete_files(storage, _dead_log(storage, path, pinned, held), is_over))


def _dead_data(
    storage: Storage, path: str, pinned: Sequence[int], held: Sequence[int], open_since_ms: int
) -> Iterator[str]:
    table = storage.delta(path)
    unused = set(table.vacuum(dry_run=True, enforce_retention_duration=False, full=True))
    for version in (*pinned, *held):
        try:
            unused -= {file.path for file in files_of(storage, path, version)}
        except DeltaError:  # of another copy of the state, in the place of which a backup was restored
            if version in pinned:
                raise
            log.warning("pin_is_gone", table=path, version=version, next_step="backfill table --unpin")
    names = [storage.path(path, name) for name in sorted(unused)]
    latest_ns = (open_since_ms - storage.retention.files_s * 1_000) * 1_000_000
    for first in range(0, len(names), _ASKED_AT_ONCE):
        for info in storage.filesystem.get_file_info(names[first : first + _ASKED_AT_ONCE]):
            if info.type == fs.FileType.File and info.mtime_ns < latest_ns:
                yield info.path


def _dead_log(storage: Storage, path: str, pinned: Sequence[int], held: Sequence[int]) -> list[str]:
    """In rising order of versions, so that an interrupted round leaves the newest ones, complete.

    The first version that stays has a checkpoint as old as the retention: a reader that listed the log since then finds
    everything that it needs. Its commit stays too, because the owner of the journal checks for the one it wrote last.
    """
    there = storage.filesystem.get_file_info(fs.FileSelector(storage.path(path, _LOG)))
    expired_ns = (now_ms() - storage.retention.log_s * 1_000) * 1_000_000
    old = [info for info in there if info.type == fs.FileType.File and info.mtime_ns < expired_ns]
    checkpoints = (_version(_CHECKPOINT, info) for info in old if info.size)
    usable = (each for each in checkpoints if each is not None and each <= min(pinned, default=each))
    first = max(usable, default=0)
    # A power failure must not take the checkpoint that replaces the deleted commits.
    storage.sync(path, _LOG, f"{first:020d}.checkpoint.parquet")
    storage.sync(path, _LOG)
    versions = {info.path: _version(_OF_VERSION, info) for info in old}
    kept = _runs_of(held, [version for info in there if (version := _version(_CHECKPOINT, info)) is not None])
    dead = sorted(
        (version, name)
        for name, version in versions.items()
        if version is not None and version < first and not any(version in run for run in kept)
    )
    unfinished = [info.path for info in old if _UNFINISHED.fullmatch(info.base_name)]
    return [*(name for _, name in dead), *unfinished]


def _runs_of(held: Sequence[int], checkpoints: Sequence[int]) -> list[range]:
    """The commits that versions are made of: those from the last checkpoint at or before each of them on."""
    return [
        range(max((each for each in checkpoints if each <= version), default=0), version + 1)
        for version in held
    ]


def _version(pattern: re.Pattern[str], info: fs.FileInfo) -> int | None:
    match = pattern.fullmatch(info.base_name)
    return None if match is None else int(match[1])


def delete_files(storage: Storage, paths: Iterable[str], is_over: Callable[[], bool]) -> int:
    """Delete files, by their paths in `storage.filesystem`, until `is_over`; returns how many there were."""
    count = 0
    for path in paths:
        if is_over():
            break
        with suppress(FileNotFoundError):  # an instance that took over cleans as well
            storage.filesystem.delete_file(path)
            count += 1
    return count


def clean_chunks(
    storage: Storage,
    named: Collection[str],
    *,
    open_since_ms: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Delete rows of chunks in files that no plan names, older by the retention than `open_since_ms` (default: now).

    `open_since_ms` is the start of the oldest chunk that is in no plan yet. Returns the number of files. Raises:
    OSError.
    """
    since_ms = now_ms() if open_since_ms is None else open_since_ms
    latest_ns = (since_ms - storage.retention.files_s * 1_000) * 1_000_000
    kept = {storage.path(CHUNKS_PATH, name) for name in named}
    unnamed = (
        info.path
        for info in storage.listed(CHUNKS_PATH)
        if info.type == fs.FileType.File and info.path not in kept and info.mtime_ns < latest_ns
    )
    return delete_files(storage, unnamed, is_over)


STATE_TABLES = (JOURNAL_PATH, PROGRESS_PATH, LOG_PATH, BASE_PATH, WAITING_PATH)
_TROUBLE = (BackfillError, DeltaError, OSError)


def clean_state(
    storage: Storage,
    table: TableSchema,
    open_since_ms: Mapping[str, int],
    is_over: Callable[[], bool] = lambda: False,
) -> Cleaned:
    """Clean every table; an error with one is logged, and the others are cleaned all the same.

    `open_since_ms`, by table: the start of the work that has files for it to commit, or else that of this round, so
    that an instance that is paused in it, and goes on hours later, does not mistake a successor's files for left-overs.
    The versions that the journal's plan names stay: an instance that repeats the plan reads them, and an owner that was
    superseded may have committed since. Once `is_over`, the rest is left to the next round.
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
    plan = None if path in (JOURNAL_PATH, PROGRESS_PATH) else _plan(storage, table)
    reading = None if plan is None else plan.reading
    if path == CHUNKS_PATH:
        named = [] if reading is None else sum(reading.files, ())
        return Cleaned(clean_chunks(storage, named, open_since_ms=open_since_ms, is_over=is_over))
    pinned, held = list[int](), list[int]()
    if path in (LOG_PATH, BASE_PATH):
        of = attrgetter("log" if path == LOG_PATH else "base")
        pinned = [] if plan is None else [of(plan.replica)]
        held = list(map(of, TablePins(storage).read().values()))
    elif reading is not None:
        pinned = [reading.waiting]
    return clean_table(storage, path, pinned=pinned, held=held, open_since_ms=open_since_ms, is_over=is_over)


def _plan(storage: Storage, table: TableSchema) -> BatchPlan | None:
    storage.delta(JOURNAL_PATH)  # which `Journal` would create
    entry = Journal(storage, table).current
    return None if entry is None else entry.plan
