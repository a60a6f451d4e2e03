"""Folders of files that belong to a user, and not to a job's state.

(XDG Base Directory Specification 0.8).
"""

from __future__ import annotations

import os
from pathlib import Path

APPLICATION = "arrangement-backfill"

CONFIG_VARIABLE = "BACKFILL_CONFIG"
"""Names the configuration file, for every command that is not given one."""


def jar_cache() -> Path:
    """Folder of the fetched jars.

    `BACKFILL_JARS`, else the user's cache. Safe to delete: it is fetched again.
    """
    if override := os.environ.get("BACKFILL_JARS"):
        return Path(override).absolute()
    return _xdg("XDG_CACHE_HOME", ".cache") / "jars"


def log_folder() -> Path:
    """Folder of log files: `BACKFILL_LOGS`, else the user's state folder. Created when absent."""
    override = os.environ.get("BACKFILL_LOGS")
    folder = Path(override).absolute() if override else _xdg("XDG_STATE_HOME", ".local/state") / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _xdg(variable: str, default: str) -> Path:
    # The specification says to ignore a relative path.
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / default) / APPLICATION
