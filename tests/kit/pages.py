"""A page of docs/ carried out as its reader would: files are written, commands run, and what they print is compared.

A block in another language than `console` belongs to the file that the paragraph before it names. A `console` block has
commands behind `$ ` and below each what it prints. Numbers may differ, and `…` stands for anything. Commands that go on
until Ctrl-C do so beside those that follow.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.kit.real import await_condition

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_FILE = re.compile(r"`([\w.-]+\.\w+)`")
_STAYS = {
    re.compile(r"backfill kafka"): re.compile(r"^127\.0\.0\.1:", re.MULTILINE),
    re.compile(r"backfill run(?!.*--exit-when-complete)"): re.compile(r"\bserving\b"),
}
"""Commands that go on, and what they print once others may follow."""
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
LIMIT_S = 600.0
END_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Command:
    line: str
    shown: str


@dataclass(frozen=True, slots=True)
class Text:
    """A file that the page shows."""

    name: str
    content: str


Step = Command | Text


def steps(page: str) -> Iterator[Step]:
    """Steps that the page has its reader do, in its order."""
    for block in _BLOCK.finditer(page):
        language, body = block.groups()
        if language == "console":
            for line, shown in _COMMAND.findall(body):
                yield Command(line, shown)
        elif names := _FILE.findall(page[: block.start()].rstrip().rpartition("\n\n")[2]):
            yield Text(names[-1], body)


def is_as_shown(shown: str, printed: str) -> bool:
    """True if the lines are those of the page, but for numbers, the width of columns, and what stands for anything."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else r".*".join(map(_words, line.rstrip().split("…"))) + r" *\n"
        for line in shown.splitlines()
    )
    return re.fullmatch(pattern, printed) is not None


def _words(text: str) -> str:
    words = r"\d[\d,.]*".join(map(re.escape, _NUMBER.split(text)))
    return re.sub(r"(?:\\ ){2,}|\\ (?=\\d)", " +", words).replace("─", "─*")


class Walk:
    """A reader of pages in a folder of their own. `texts` are in place of what the pages have."""

    def __init__(self, folder: Path, texts: Mapping[str, str], programs: Path | None = None) -> None:
        self._folder, self._texts = folder, texts
        self._beside: list[_Beside] = []
        places = [
            *([str(programs)] if programs else []),
            str(Path(sys.executable).parent),
            os.environ["PATH"],
        ]
        self._environment = {**os.environ, "PATH": os.pathsep.join(places), "COLUMNS": "120", "NO_COLOR": "1"}

    def __enter__(self) -> Walk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        ended = [each.end() for each in reversed(self._beside)]
        assert kind is not None or all(ended), [each.printed for each in self._beside]

    def take(self, step: Step) -> None:
        """Do it. Raises: AssertionError if it fails, or prints something else than the page says."""
        if isinstance(step, Text):
            (self._folder / step.name).write_text(self._placed(step.content), encoding="utf-8")
            return
        for stays, ready in _STAYS.items():
            if stays.match(step.line):
                self._begin(step.line, ready)
                return
        self._run(step)

    def _placed(self, text: str) -> str:
        for shown, real in self._texts.items():
            text = text.replace(shown, real)
        return text

    def _begin(self, line: str, ready: re.Pattern[str]) -> None:
        beside = _Beside(self._placed(line), self._folder, self._environment)
        self._beside.append(beside)
        await_condition(lambda: bool(ready.search(beside.printed)) or beside.has_ended, line, limit_s=LIMIT_S)
        assert ready.search(beside.printed), beside.printed

    def until(self, step: Command) -> None:
        """Repeat a command that reads until it prints what the page says: what the page says to wait for."""
        await_condition(
            lambda: is_as_shown(self._placed(step.shown), self._printed(step)), step.line, limit_s=LIMIT_S
        )

    def _run(self, step: Command) -> None:
        printed = self._printed(step)
        assert not step.shown or is_as_shown(self._placed(step.shown), printed), f"{step.line}\n{printed}"

    def _printed(self, step: Command) -> str:
        here = self._folder / ".here"
        script = f"{self._placed(step.line)}\nstatus=$?; pwd > {here}; exit $status"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{step.line}\n{done.stdout}"
        self._folder = Path(here.read_text(encoding="utf-8").strip())
        return done.stdout


class _Beside:
    """A command that goes on until it is asked to end."""

    def __init__(self, line: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._lines.extend, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def printed(self) -> str:
        return "".join(self._lines)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> bool:
        """By SIGTERM; whether it ended well, or had been killed by the page."""
        killed = self._process.poll() == -signal.SIGKILL
        self._process.terminate()
        status = self._process.wait(END_LIMIT_S)
        self._reader.join()
        return killed or status == 0
