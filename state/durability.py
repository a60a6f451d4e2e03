"""Durability on a local disk: files, and the folders that name them, are synced before anything relies on them.

A killed process loses nothing that it has written; a machine that loses power loses whatever the kernel has not written
yet, in any order. So each effect waits until everything that it relies on is on the disk:

    a file of a table     before the commit that names it
    a commit              before the next effect of any kind: the next commit of any table, a lane that sends; it is
                          synced meanwhile (`Background`)
    a checkpoint          before the commits that it stands for are deleted
    existing commits      at a start, or in a conflict: another process may have died between a commit and its sync

Then only the newest commit of one table can be missing or torn after a power failure, and nothing has relied on it:
`set_torn_aside` renames it. An object store is durable by itself, and nothing here applies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

TORN = ".torn"
"""Ending of files that were set aside."""
_CHECKPOINT = ".checkpoint.parquet"
_HINT = "_last_checkpoint"
_MAGIC = b"PAR1"


def sync_path(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; a path that is gone needs no sync.

    Raises: OSError when the disk fails. The written data may be lost then, even if a later try succeeds.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Background:
    """Syncs paths in the order given, in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._under_way: list[Future[None]] = []

    def begin(self, paths: Sequence[Path]) -> None:
        """Sync these paths after those under way."""
        self._under_way.append(self._thread.submit(_sync_all, paths))

    def wait(self) -> None:
        """Wait until all are on the disk. Raises: OSError, as `sync_path`."""
        while self._under_way:
            self._under_way[0].result()
            del self._under_way[0]


def _sync_all(paths: Sequence[Path]) -> None:
    for path in paths:
        sync_path(path)


def set_torn_aside(table: Path) -> list[Path]:
    """Rename files that a power failure left half written at the newest end of a Delta log; returns the old paths.

    Only for the owner of the state, before its tables are opened. Damage further back is left as it is.
    """
    log = table / "_delta_log"
    torn = list(_torn(log)) if log.is_dir() else []
    for path in torn:
        path.rename(path.with_name(path.name + TORN))
    if torn:
        sync_path(log)
    return torn


def _torn(log: Path) -> Iterator[Path]:
    commits = sorted(log.glob("[0-9]*.json"))
    if commits and not _is_commit(commits[-1]):
        yield commits[-1]
    checkpoints = sorted(log.glob(f"[0-9]*{_CHECKPOINT}"))
    damaged = [path for path in checkpoints[-1:] if not _is_parquet(path)]
    yield from damaged
    hint = log / _HINT
    if hint.exists() and (damaged or not _is_commit(hint)):
        yield hint


def _is_commit(path: Path) -> bool:
    """True if each line is a whole JSON object."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
        file.seek(0, os.SEEK_END)
        if file.tell() <= 2 * len(_MAGIC):
            return False
        file.seek(-len(_MAGIC), os.SEEK_END)
        return start == _MAGIC == file.read()
