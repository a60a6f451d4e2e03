"""Deleting what no version of a table needs any more: data files, commits before a checkpoint, left-overs.

Delta's own vacuum commits to the table that it cleans, and any commit of an instance that was fenced without knowing
it would fence the one that works; so vacuum is only asked what it would delete. The cleaning of Delta's log after each
commit is left out as well: it lists the log each time, and knows of no plan that names an old version.

What is listed is what is live and what is younger than the retention, so a round costs the same after months.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyarrow import fs

from state.ledger import files_of
from state.storage import Storage, now_ms

_LOG = "_delta_log"
_OF_VERSION = re.compile(r"([0-9]{20})\.(?:json|crc|checkpoint(?:\..+)?\.parquet)")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet")
_UNFINISHED = re.compile(r".*(?:\.tmp|#[0-9]+)")
"""A commit that was being written when its process was killed."""
_ASKED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Files that were deleted: data, and commits and checkpoints of the log."""

    data: int = 0
    log: int = 0

    def __or__(self, other: Cleaned) -> Cleaned:
        return Cleaned(self.data + other.data, self.log + other.log)


def clean(
    storage: Storage,
    path: str,
    *,
    pinned: Sequence[int] = (),
    open_since_ms: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Cleaned:
    """Delete what the table at `path` needed longer ago than its retention. Others may commit meanwhile.

    `pinned` are versions that stay readable, those of a plan that may be carried out again. `open_since_ms` is when the
    oldest work began that has not committed its files yet, by default now: files older than that by the retention are
    left-overs, and no others. Once `is_over`, nothing more is deleted.
    Raises: TableNotFoundError and DeltaError of deltalake, OSError. A file that is gone already is none.
    """
    since_ms = now_ms() if open_since_ms is None else open_since_ms
    data = delete_files(storage, _dead_data(storage, path, pinned, since_ms), is_over)
    return Cleaned(data, delete_files(storage, _dead_log(storage, path, pinned), is_over))


def _dead_data(storage: Storage, path: str, pinned: Sequence[int], open_since_ms: int) -> Iterator[str]:
    table = storage.delta(path)
    unused = set(table.vacuum(dry_run=True, enforce_retention_duration=False, full=True))
    for version in pinned:
        unused -= {file.path for file in files_of(storage, path, version)}
    names = [storage.path(path, name) for name in sorted(unused)]
    latest_ns = (open_since_ms - storage.retention.files_s * 1_000) * 1_000_000
    for first in range(0, len(names), _ASKED_AT_ONCE):
        for info in storage.filesystem.get_file_info(names[first : first + _ASKED_AT_ONCE]):
            if info.type == fs.FileType.File and info.mtime_ns < latest_ns:
                yield info.path


def _dead_log(storage: Storage, path: str, pinned: Sequence[int]) -> list[str]:
    """In rising order of versions, so that whatever ends it leaves the newest ones, complete.

    The first version that stays has a checkpoint as old as the retention: a reader that has listed the log since finds
    what it needs there. Its commit stays too, because the owner of the journal looks for the one that it wrote last.
    """
    there = storage.filesystem.get_file_info(fs.FileSelector(storage.path(path, _LOG)))
    expired_ns = (now_ms() - storage.retention.log_s * 1_000) * 1_000_000
    old = [info for info in there if info.type == fs.FileType.File and info.mtime_ns < expired_ns]
    checkpoints = (_version(_CHECKPOINT, info) for info in old if info.size)
    first = max(
        (
            version
            for version in checkpoints
            if version is not None and version <= min(pinned, default=version)
        ),
        default=0,
    )
    # A power failure must not take what the commits that go are replaced by.
    storage.sync(path, _LOG, f"{first:020d}.checkpoint.parquet")
    storage.sync(path, _LOG)
    versions = {info.path: _version(_OF_VERSION, info) for info in old}
    dead = sorted(
        (version, name) for name, version in versions.items() if version is not None and version < first
    )
    unfinished = [info.path for info in old if _UNFINISHED.fullmatch(info.base_name)]
    return [*(name for _, name in dead), *unfinished]


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
