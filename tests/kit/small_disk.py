"""A file system of a few megabytes in memory, as `TMPDIR` is on many machines."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_tmpfs(folder: Path, mib: int) -> Iterator[Path]:
    """A tmpfs at a folder until the block ends. Skips the test, in mount's own words, where this user may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=1777", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def resize(folder: Path, mib: int) -> None:
    """Give a tmpfs another size."""
    subprocess.run(["mount", "-o", f"remount,size={mib}m", str(folder)], check=True)
