"""Python runs this in every process of a service that has this folder on PYTHONPATH: it notes what is synced.

    BACKFILL_POWER_STATE   the folder that is looked at
    BACKFILL_POWER_NOTES   where the notes go: `contents/<inode>` as of a file's last sync, `names/<inode>.json` of a
                           folder's, and `pins/<inode>`, a link that keeps the number from being given to another file

Read by `tests.kit.power.left_by`.
"""

import contextlib
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

STATE, NOTES = (os.environ.get(f"BACKFILL_POWER_{name}") for name in ("STATE", "NOTES"))


def note(state: Path, notes: Path, path: Path) -> None:
    """Keep what a sync has put on the disk. A reader of the notes never finds half of one."""
    if not path.is_relative_to(state):
        return
    fresh = notes / uuid.uuid4().hex
    with contextlib.suppress(FileNotFoundError):  # of a file that is deleted meanwhile
        inode = path.stat().st_ino
        if path.is_dir():
            fresh.write_text(json.dumps({each.name: pinned(notes, each) for each in path.iterdir()}))
            fresh.rename(notes / "names" / f"{inode}.json")
        else:
            pinned(notes, path)
            shutil.copyfile(path, fresh)
            fresh.rename(notes / "contents" / str(inode))


def pinned(notes: Path, path: Path) -> int:
    """A path's inode, which stays its own. Folders are never given another one's while the service lives."""
    inode = path.stat().st_ino
    if not path.is_dir():
        with contextlib.suppress(FileExistsError):
            os.link(path, notes / "pins" / str(inode))
    return inode


if STATE and NOTES:
    state, notes, fsync = Path(STATE).resolve(), Path(NOTES).resolve(), os.fsync

    def noted_fsync(fd: Any) -> None:
        fsync(fd)
        note(state, notes, Path(f"/proc/self/fd/{fd}").readlink())

    os.fsync = noted_fsync
