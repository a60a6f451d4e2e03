"""Disk that the state takes, for people: measured by a thread of its own, on demand."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from state.initial.chunks import CHUNKS_PATH
from state.journal import PATH as JOURNAL_PATH
from state.progress_table import PATH as PROGRESS_PATH
from state.replica import BASE_PATH, LOG_PATH, ReplicaFiles
from state.storage import Storage
from streaming.observe.models import DiskStatus

PAUSE_S = 2.0
"""From one measurement to the next at the least; one that takes long is followed by a longer pause."""
MOST_PAUSE_S = 60.0
_PAUSES_PER_WORK = 500.0
LEAST_FREE_BYTES = 1 << 30
LEAST_ROWS_FREE_BYTES = 64 << 20
_ROWS_SHARE = 4
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own is."""


@dataclass(frozen=True, slots=True)
class _Measured:
    at_s: float = 0.0
    parts: Mapping[str, int | None] = field(default_factory=dict)
    free: int | None = None
    size: int | None = None
    rows_free: int | None = None

    @property
    def rows_low(self) -> bool:
        """True if the rows by key are likely to outgrow their disk."""
        taken = self.parts.get("rows")
        if taken is None or self.rows_free is None:
            return False
        return self.rows_free < max(taken // _ROWS_SHARE, LEAST_ROWS_FREE_BYTES)


class StateSize:
    """Of one state. `rows_folder` gives the folder with its rows by key, None while that is not known."""

    def __init__(
        self,
        storage: Storage,
        rows_folder: Callable[[], Path | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage, self._rows_folder, self._clock = storage, rows_folder, clock
        self._lock = threading.Lock()
        self._due_s: float | None = None
        self._thread: threading.Thread | None = None
        self._measured = _Measured()

    def look(self, files: ReplicaFiles | None) -> DiskStatus | None:
        """The last measurement; a new one is begun, not waited for, where it is due.

        `files` are the replica's as the tables name them. None where nothing is known yet.
        """
        base = sum(file.size for each in files.base.values() for file in each) if files else 0
        log = sum(file.size for file in files.log) if files else 0
        self._begin()
        found, in_store = self._measured, self._storage.is_store
        if files is None if in_store else found.free is None:
            return None
        return DiskStatus(
            age_s=None if in_store else self._clock() - found.at_s,
            base_bytes=base if in_store else found.parts["base"] or 0,
            log_bytes=log if in_store else found.parts["log"] or 0,
            journal_bytes=found.parts.get("journal"),
            progress_bytes=found.parts.get("progress"),
            initial_bytes=found.parts.get("initial"),
            # Rows by key are on this machine in any case.
            rows_bytes=found.parts.get("rows"),
            rows_free_bytes=found.rows_free,
            free_bytes=found.free,
            disk_bytes=found.size,
            # Files that a compaction has replaced stay for an hour.
            is_low=found.free is not None and found.free < max(base + log, LEAST_FREE_BYTES),
            rows_low=found.rows_low,
        )

    def _begin(self) -> None:
        with self._lock:
            is_due = self._due_s is None or self._clock() >= self._due_s
            # A disk that does not answer holds one thread, and no second one.
            if is_due and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._measure, name="state-size", daemon=True)
                self._thread.start()

    def _measure(self) -> None:
        began_s, rows = self._clock(), self._rows_folder()
        with suppress(OSError):  # not made yet, or away: what was measured before grows old
            usage = None if self._storage.is_store else shutil.disk_usage(self._storage.root)
            folders = {} if self._storage.is_store else _folders(Path(self._storage.root))
            parts = {key: taken_bytes(folder) for key, folder in folders.items()}
            parts["rows"] = None if rows is None else taken_bytes(rows)
            rows_free = shutil.disk_usage(rows).free if rows is not None and rows.is_dir() else None
            free, size = (None, None) if usage is None else (usage.free, usage.total)
            self._measured = _Measured(self._clock(), parts, free, size, rows_free)
        ended_s = self._clock()
        self._due_s = ended_s + min(max((ended_s - began_s) * _PAUSES_PER_WORK, PAUSE_S), MOST_PAUSE_S)

    def wait(self, timeout_s: float) -> None:
        """Until the measurement under way, if any, is done."""
        if self._thread is not None:
            self._thread.join(timeout_s)


def taken_bytes(folder: Path) -> int | None:
    """Bytes that the files below a folder take on the disk; None without the folder. Files deleted meanwhile may count.

    Blocks, not lengths: rows by key are in files of a terabyte with holes.
    """
    if not folder.is_dir():
        return None
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(place, name).lstat().st_blocks * _BLOCK_BYTES
    return total


def _folders(root: Path) -> dict[str, Path]:
    """Folders of a state by the names of `DiskStatus`."""
    return {
        "base": root / BASE_PATH,
        "log": root / LOG_PATH,
        "journal": root / JOURNAL_PATH,
        "progress": root / PROGRESS_PATH,
        "initial": (root / CHUNKS_PATH).parent,
    }
