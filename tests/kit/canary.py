"""Looks for planted secrets wherever a run leaves something, while it runs and afterwards."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

_LOOK_EVERY_S = 0.2


class Canary:
    """`planted` are secrets by name, each with a part that is nowhere else in plain letters and digits.

    While the block runs, the command lines of all processes and the files of `passing` folders, which may be gone
    afterwards, are looked through again and again. `hits` is what was found, there or by `look`.
    """

    def __init__(self, planted: Mapping[str, str], passing: Path) -> None:
        self._needles = {name: _forms(text) for name, text in planted.items()}
        self._passing = passing
        self.hits: set[tuple[str, str]] = set()
        self.looked_at: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self, *folders: Path) -> None:
        """Look through every file below these folders, and at their names."""
        for folder in folders:
            for file in _files(folder):
                self._search(str(file), str(file).encode())
                with suppress(OSError):
                    self._search(str(file), file.read_bytes())

    def look_at_output(self, where: str, text: str) -> None:
        """Look through what a process said."""
        self._search(where, text.encode())

    def _keep_looking(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    self._search("command line", (process / "cmdline").read_bytes())
            self.look(self._passing)

    def _search(self, where: str, data: bytes) -> None:
        self.looked_at.add(where)
        for name, forms in self._needles.items():
            if any(form in data for form in forms):
                self.hits.add((name, where))


def _files(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        for path in folder.rglob("*"):
            if path.is_file():
                yield path


def _forms(text: str) -> list[bytes]:
    """The secret as it is, as UTF-16, and within a longer text in base64."""
    plain = text.encode()
    shifted = [base64.b64encode(b"x" * shift + plain)[4:-4] for shift in range(3)]
    return [plain, text.encode("utf-16-le"), *shifted]
