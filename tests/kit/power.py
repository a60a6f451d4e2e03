"""A disk that keeps only what was synced: a power failure leaves that, and nothing else.

    disk = Disk(folder)             watches `os.fsync` below a folder
    disk.lose_power(left)           what is on the disk for certain, as a folder of its own

    noting(folder, notes)           the environment for a service of several processes whose syncs are noted
    left_by(notes, folder, left)    what is on the disk for certain, once they are dead

The harshest machine that POSIX allows: a file has the content of its last sync, or is empty; a name is there once its
folder was synced with it, and a name that was taken away is back until then.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.kit.power_shim.sitecustomize import note


class Disk:
    """A folder as a power failure would leave it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder.resolve()
        self.syncs = 0
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        real = os.fsync

        def fsync(descriptor: int) -> None:
            real(descriptor)
            self._note(Path(f"/proc/self/fd/{descriptor}").readlink())

        monkeypatch.setattr(os, "fsync", fsync)

    def _note(self, path: Path) -> None:
        if not path.is_relative_to(self.folder):
            return
        self.syncs += 1
        if path.is_dir():
            self._names[path] = {each.name: each.stat().st_ino for each in path.iterdir()}
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()

    def lose_power(self, left: Path) -> Path:
        """The folder as it comes back, at `left`."""
        self._restore(self.folder, left)
        return left

    def _restore(self, folder: Path, left: Path) -> None:
        left.mkdir(parents=True)
        for name, inode in self._names.get(folder, {}).items():
            path = folder / name
            if path.is_dir():
                self._restore(path, left / name)
            else:
                (left / name).write_bytes(self._contents.get(inode, b""))


def noting(folder: Path, notes: Path) -> dict[str, str]:
    """For the environment of a service whose state is `folder`. `notes` has to be on the same file system."""
    for kind in ("contents", "names", "pins"):
        (notes / kind).mkdir(parents=True)
    shim = Path(__file__).parent / "power_shim"
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(shim), os.environ.get("PYTHONPATH")])),
        "BACKFILL_POWER_STATE": str(folder),
        "BACKFILL_POWER_NOTES": str(notes),
    }


def left_by(notes: Path, folder: Path, left: Path) -> int:
    """Make `left` what a power failure would have left of the folder; gives the count of files that are whole."""
    left.mkdir(parents=True)
    names = notes / "names" / f"{folder.stat().st_ino}.json"
    whole = 0
    for name, inode in json.loads(names.read_text()).items() if names.exists() else ():
        if (notes / "pins" / str(inode)).exists():
            synced = notes / "contents" / str(inode)
            (left / name).write_bytes(synced.read_bytes() if synced.exists() else b"")
            whole += synced.exists()
        elif (folder / name).is_dir():
            whole += left_by(notes, folder / name, left / name)
    return whole


def lose_power(folder: Path, notes: Path) -> int:
    """Put what is left of a dead service's folder in its place: all of that is on the disk. Gives what is whole."""
    left = folder.with_name(f"{folder.name}-left")
    whole = left_by(notes, folder, left)
    shutil.rmtree(folder)
    left.rename(folder)
    for path in (folder, *folder.rglob("*")):
        note(folder, notes, path)
    return whole
