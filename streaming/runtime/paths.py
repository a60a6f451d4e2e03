"""Folders of files that belong to a user, and not to a job's state: jars, logs, scratch; and what is left in them.

Jars and logs are where the XDG Base Directory Specification 0.8 says. Deleted is what killed processes left behind:
Spark's scratch folders, log files, and rows of states no longer in use. A scratch folder belongs to the processes that
hold the lock of a file in it: this one and, by inheritance, its JVM, which may outlive it for some seconds. The kernel
releases the lock when the last of them ends, whatever the cause; so neither reused process ids nor clocks matter.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

APPLICATION = "arrangement-backfill"

CONFIG_VARIABLE = "BACKFILL_CONFIG"
"""Names the configuration file, for every command that is not given one."""
KEPT_LOGS = 20
"""Processes whose log files are kept, the newest; those of live ones are kept anyway."""
_PREFIX, _LOCK = "backfill-spark-", "lock"
_ROWS = re.compile(r"backfill-(?:[0-9a-f-]{36}-rows|rows-[a-z0-9_]+)")
UNUSED_S = 7 * 86_400
"""Age at which the rows of a lane count as left behind. Should they be needed again, they are read anew."""
_LOG = re.compile(r"(?:spark|lane|demo|crash-[0-9T]+)-([0-9]+)\.(?:log(?:\.[0-9]+)?|out)")


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


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder for one session. It is not swept while a process holds `lock`, an open file descriptor."""

    folder: str
    lock: int


@contextmanager
def scratch() -> Iterator[Scratch]:
    """A new scratch folder, deleted afterwards. See `sweep_scratch` for those that were not."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder:
        lock = os.open(Path(folder, _LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Scratch(folder, lock)
        finally:
            os.close(lock)


def sweep_scratch() -> int:
    """Delete scratch folders of this user that no process holds; returns how many.

    One without a lock file stays: it was just made, or by a version that made none.
    """
    every = Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")
    return _delete(folder for folder in every if _is_ours(folder) and _is_let_go(folder / _LOCK))


def sweep_rows(root: Path) -> int:
    """Delete this user's folders of rows below a folder (`streaming.lane.before`) not opened for so long; how many.

    A lane that opens a store touches a file in it.
    """
    limit = time.time() - UNUSED_S
    return _delete(
        folder
        for folder in root.glob("backfill-*")
        if _ROWS.fullmatch(folder.name) and _is_ours(folder) and _newest_in(folder) < limit
    )


def _delete(folders: Iterable[Path]) -> int:
    found = list(folders)
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return len(found)


def _newest_in(folder: Path) -> float:
    """Time of the last write in a folder."""
    newest = 0.0
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            newest = max(newest, path.lstat().st_mtime)
    return newest


def _is_ours(folder: Path) -> bool:
    """A folder, not a link to one, of this user: any user may write to the folder that it is in."""
    with suppress(OSError):
        status = folder.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return False


def _is_let_go(file: Path) -> bool:
    try:
        lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def sweep_logs(folder: Path, keep: int = KEPT_LOGS) -> int:
    """Delete the log files of all dead processes but the `keep` newest; returns how many files."""
    runs: dict[int, list[tuple[float, Path]]] = defaultdict(list)
    for file in folder.iterdir():
        match = _LOG.fullmatch(file.name)
        with suppress(FileNotFoundError):  # another process sweeps as well
            if match:
                runs[int(match[1])].append((file.stat().st_mtime, file))
    gone = [files for pid, files in runs.items() if not _is_alive(pid, max(files)[0])]
    gone.sort(key=max, reverse=True)
    swept = [file for files in gone[keep:] for _, file in files]
    for file in swept:
        file.unlink(missing_ok=True)
    return len(swept)


def _is_alive(pid: int, written_at: float) -> bool:
    """True if the process that wrote at that time lives, and not another one of the same id."""
    # Imported on first use: commands import this module for its paths.
    import psutil

    try:
        return psutil.Process(pid).create_time() <= written_at
    except psutil.Error:
        return False
