"""Storages that leave one sync out."""

from __future__ import annotations

from state.journal import PATH as JOURNAL_PATH
from state.progress_table import PATH as PROGRESS_PATH
from state.replica import BASE_PATH, LOG_PATH
from tests.simulation.storage import MemoryStorage


class _Unsynced(MemoryStorage):
    forgets = ""

    def sync(self, *parts: str) -> None:
        if parts[0] != self.forgets:
            super().sync(*parts)


class UnsyncedJournal(_Unsynced):
    forgets = JOURNAL_PATH


class UnsyncedProgress(_Unsynced):
    forgets = PROGRESS_PATH


class UnsyncedLog(_Unsynced):
    forgets = LOG_PATH


class UnsyncedBase(_Unsynced):
    forgets = BASE_PATH


class UnsyncedLogFiles(MemoryStorage):
    """Commits are synced, and what they name is not."""

    def sync(self, *parts: str) -> None:
        if parts[0] != LOG_PATH or (len(parts) > 1 and not parts[-1].endswith(".parquet")):
            super().sync(*parts)


class NeverWaits(MemoryStorage):
    """Syncs are begun and not waited for."""

    def await_synced(self) -> None:
        """Not at all."""


class LeavesTornCommits(MemoryStorage):
    def set_torn_aside(self) -> list[str]:
        return []
