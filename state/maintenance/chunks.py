"""Deleting rows of chunks that no plan names any more: see `state.initial.chunks`."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyarrow import fs

from state.initial.chunks import CHUNKS_PATH
from state.maintenance.cleaning import delete_files
from state.storage import Storage, now_ms


def clean_chunks(
    storage: Storage,
    named: Collection[str],
    *,
    open_since_ms: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Delete files that are not `named`, and older by the retention than `open_since_ms` (now); how many there were.

    `open_since_ms` is when the oldest chunk began that is in no plan yet. Raises: OSError.
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
