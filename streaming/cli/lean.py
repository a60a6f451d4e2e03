"""Makes read-only commands start fast: packages that they do not use count as not installed.

pyarrow imports pandas and numpy wherever they are, for arrays of theirs that are never passed here. That alone takes
longer than all the rest of `backfill list`: 0.9 s and 0.3 s of CPU, of 1.9 s.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_ASKING = frozenset({"list", "status"})
_OBJECTS_BEFORE_A_LOOK = 200_000
_WITH_SPARK = frozenset({"run", "rebuild", "demo", "prepare"})


class _Absent(MetaPathFinder):
    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._packages:
            raise ModuleNotFoundError(f"{fullname} is left out", name=fullname)
        return None


def leave_out(command: str) -> None:
    """Hide packages that the command does not use. Only for a process that runs nothing else."""
    if command in _WITH_SPARK:
        return
    absent = {"pandas", "numpy"} if command in _ASKING else {"pandas"}
    sys.meta_path.insert(0, _Absent(frozenset(absent - sys.modules.keys())))
    if command in _ASKING:
        # What is imported stays, and looking through it again and again takes a fifth of the time.
        gc.set_threshold(_OBJECTS_BEFORE_A_LOOK)
