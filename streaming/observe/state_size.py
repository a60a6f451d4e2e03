"""How much disk the state takes, for people to look at: measured by a thread of its own, on demand."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own is."""


@dataclass(frozen=True, slots=True)
class _Measured:
    at_s: float
    parts: dict[str, int | None]
    free: int
    size: int


class StateSize:
    """Of one state. `rows_name` gives the name of the folder with its rows by key, None while that is not known."""

    def __init__(
        self,
        storage: Storage,
        rows_name: Callable[[], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage, self._rows_name, self._clock = storage, rows_name, clock
        self._lock = threading.Lock()
        self._due_s: float | None = None
        self._thread: threading.Thread | None = None
        self._measured: _Measured | None = None

    def look(self, files: ReplicaFiles | None) -> DiskStatus | None:
        """What was measured last; a new measurement is begun, not waited for, where one is due.

        `files` are the replica's as the tables name them. None where nothing is known yet.
        """
        base = sum(file.size for each in files.base.values() for file in each) if files else 0
        log = sum(file.size for file in files.log) if files else 0
        if self._storage.is_store:
            return _in_a_store(base, log) if files else None
        self._begin()
        found = self._measured
        if found is None:
            return None
        return DiskStatus(
            age_s=self._clock() - found.at_s,
            base_bytes=found.parts["base"] or 0,
            log_bytes=found.parts["log"] or 0,
            journal_bytes=found.parts["journal"],
            progress_bytes=found.parts["progress"],
            initial_bytes=found.parts["initial"],
            rows_bytes=found.parts["rows"],
            free_bytes=found.free,
            disk_bytes=found.size,
            # Files that a compaction has replaced stay for an hour.
            is_low=found.free < max(base + log, LEAST_FREE_BYTES),
        )

    def _begin(self) -> None:
        with self._lock:
            is_due = self._due_s is None or self._clock() >= self._due_s
            # A disk that does not answer holds one thread, and no second one.
            if is_due and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._measure, name="state-size", daemon=True)
                self._thread.start()

    def _measure(self) -> None:
        root, began_s = Path(self._storage.root), self._clock()
        with suppress(OSError):  # not made yet, or away: what was measured before grows old
            usage = shutil.disk_usage(root)
            name = self._rows_name()
            folders = {
                "base": root / BASE_PATH,
                "log": root / LOG_PATH,
                "journal": root / JOURNAL_PATH,
                "progress": root / PROGRESS_PATH,
                "initial": (root / CHUNKS_PATH).parent,
                "rows": Path(tempfile.gettempdir(), name) if name else None,
            }
            parts = {key: None if folder is None else taken_bytes(folder) for key, folder in folders.items()}
            self._measured = _Measured(self._clock(), parts, usage.free, usage.total)
        ended_s = self._clock()
        self._due_s = ended_s + min(max((ended_s - began_s) * _PAUSES_PER_WORK, PAUSE_S), MOST_PAUSE_S)

    def wait(self, timeout_s: float) -> None:
        """Until the measurement under way, if any, is done."""
        if self._thread is not None:
            self._thread.join(timeout_s)


def taken_bytes(folder: Path) -> int | None:
    """What the files below a folder take on the disk; None if it is not there. What is deleted meanwhile may count.

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


def _in_a_store(base: int, log: int) -> DiskStatus:
    return DiskStatus(
        age_s=None,
        base_bytes=base,
        log_bytes=log,
        journal_bytes=None,
        progress_bytes=None,
        initial_bytes=None,
        rows_bytes=None,
        free_bytes=None,
        disk_bytes=None,
        is_low=False,
    )
