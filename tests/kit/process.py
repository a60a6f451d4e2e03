"""`backfill run` as a process of its own: started, listened to, signalled, and waited for with all its children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.kit.real import WAIT_S, await_condition

STOP_LIMIT_S = 30.0


@dataclass
class Process:
    """`backfill run`, what it says, and the processes that it started."""

    popen: subprocess.Popen[str]
    lines: list[str]
    reader: threading.Thread

    @classmethod
    def start(cls, config: Path, *options: str, verb: str = "run", **environment: str) -> Process:
        command = [
            sys.executable,
            "-m",
            "streaming.cli.app",
            verb,
            str(config),
            "--log-json",
            "--log-level",
            "debug",
            *options,
        ]
        popen = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            start_new_session=True,  # a process group of its own, for tests that signal all of it
        )
        lines: list[str] = []
        assert popen.stderr is not None
        reader = threading.Thread(target=lines.extend, args=(popen.stderr,), daemon=True)
        reader.start()
        return cls(popen, lines, reader)

    def says(self, event: str) -> bool:
        return any(f'"event": "{event}"' in line for line in self.lines)

    def await_event(self, event: str) -> None:
        await_condition(lambda: self.says(event) or self.popen.poll() is not None, event)
        assert self.says(event), self.lines[-5:]

    def events(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of this kind."""
        return [json.loads(line) for line in list(self.lines) if f'"event": "{event}"' in line]

    def children(self) -> list[psutil.Process]:
        """Children of a process that lives: the number of one that has ended may be another's by now."""
        if self.popen.poll() is not None:
            return []
        try:
            return psutil.Process(self.popen.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL for it and everything that it started, as far as that is still there."""
        children = self.children()
        self.popen.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def wrote_lines_only(self) -> bool:
        """True if all of its output is log lines, and no stack trace, say."""
        return all(line.startswith("{") and line.rstrip().endswith("}") for line in self.lines)

    def end(self, number: signal.Signals | None = None, *, limit_s: float = WAIT_S) -> int:
        """Its exit status, after a signal within the promised time; its children have to be gone as well."""
        children = self.children()
        if number is not None:
            self.popen.send_signal(number)
        status = self.popen.wait(limit_s if number is None else STOP_LIMIT_S)
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive
        self.reader.join()
        return status
