"""The folder of the rows by key, on a lane's machine: this user's alone, and its errors in words.

    <rows_folder, or the machine's folder for temporary files>/backfill-<id of the state>-rows/<first vnode>-<end>

All users may write to a folder for temporary files, and see a state's name there. So a folder that another user made,
or a link, is refused: its content would be believed, and the table's rows written where others read them.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lmdb

from schemas.errors import Code, EnvironmentProblem

_OWN_MODE, _OTHERS, _OTHERS_WRITE = 0o700, 0o077, 0o022
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_FULL_BYTES = 1 << 20
_NO_ROOM_TEXTS = tuple(map(os.strerror, _NO_ROOM))


def rows_root(configured: str | None) -> Path:
    """The folder that holds the rows of all states on this machine; None: the one for temporary files."""
    return Path(tempfile.gettempdir() if configured is None else configured)


def rows_name(transactional_id: str) -> str:
    """The name of the folder that holds a state's rows by key, below `rows_root`."""
    return f"{transactional_id}-rows"


def make_root(configured: str | None) -> Path:
    """The folder of `rows_root`, made if it is not there yet. Raises: EnvironmentProblem."""
    root = rows_root(configured)
    with explained(root):
        root.mkdir(mode=_OWN_MODE, parents=True, exist_ok=True)
    return root


def own_folder(folder: Path) -> None:
    """Make a folder that this user alone can enter, or make one that is there so; its parent has to exist.

    What others could write to until now is emptied. Raises: EnvironmentProblem(ROWS_FOLDER_FOREIGN) for a link, and for
    what another user owns; EnvironmentProblem(ROWS_DISK_FULL, ROWS_FOLDER_UNUSABLE).
    """
    with explained(folder):
        with suppress(FileExistsError):
            folder.mkdir(mode=_OWN_MODE)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise foreign(folder, found)
        if found.st_mode & _OTHERS_WRITE:
            shutil.rmtree(folder)
            folder.mkdir(mode=_OWN_MODE)
        elif found.st_mode & _OTHERS:
            folder.chmod(_OWN_MODE)


def foreign(folder: Path, found: os.stat_result) -> EnvironmentProblem:
    """The error for what is not this user's folder."""
    what = (
        "a link" if stat.S_ISLNK(found.st_mode) else "a folder" if stat.S_ISDIR(found.st_mode) else "a file"
    )
    return EnvironmentProblem(
        Code.ROWS_FOLDER_FOREIGN,
        where=str(folder),
        found=f"{what} of user {found.st_uid}",
        user=os.geteuid(),
    )


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Give errors of the file system and of LMDB below a folder in words.

    Raises: EnvironmentProblem(ROWS_DISK_FULL, ROWS_FOLDER_UNUSABLE).
    """
    try:
        yield
    except (lmdb.Error, OSError) as error:
        raise problem_of(folder, error) from error


def problem_of(folder: Path, error: Exception) -> EnvironmentProblem:
    """The error in words, with what is free now."""
    if is_full(error, folder):
        return EnvironmentProblem(
            Code.ROWS_DISK_FULL, where=str(folder), found=f"no room ({_free_text(folder)} free)"
        )
    if isinstance(error, (lmdb.MapFullError, lmdb.MapResizedError, lmdb.MemoryError)):
        found = "a limit on the address space of this process (ulimit -v, RLIMIT_AS)"
    else:
        found = f"{getattr(error, 'strerror', None) or error}"
    return EnvironmentProblem(Code.ROWS_FOLDER_UNUSABLE, where=str(folder), found=found)


def is_full(error: Exception, folder: Path) -> bool:
    """True if the file system, or this user's quota, is full.

    LMDB reports what is written in part as an error of the device (`mdb_page_flush`: EIO), as when a disk fills up.
    """
    if not isinstance(error, lmdb.Error):
        return getattr(error, "errno", None) in _NO_ROOM
    if str(error).endswith(os.strerror(errno.EIO)):
        return _usage(folder)[0] < _FULL_BYTES
    return isinstance(error, lmdb.DiskError) or str(error).endswith(_NO_ROOM_TEXTS)


def _usage(folder: Path) -> tuple[int, int]:
    """Bytes that are free, and those of the file system, of a folder that may not be there."""
    existing = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
    usage = shutil.disk_usage(existing)
    return usage.free, usage.total


def _free_text(folder: Path) -> str:
    free, total = _usage(folder)
    return f"{free >> 20:,} of {total >> 20:,} MiB"
