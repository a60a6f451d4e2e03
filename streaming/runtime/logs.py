"""Log lines: for a person where standard error is a terminal, JSON where another program reads them.

They go to standard error, since standard output belongs to what a command was asked for, or to a file where
standard error is a screen that a command draws. Fields hold places, counts and times; never a key, a row or
a secret.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog


class LogLevel(StrEnum):
    """The least level of the lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """Its number for `logging`."""
        return logging.getLevelNamesMapping()[self.value.upper()]


def configure(
    *,
    as_json: bool | None = None,
    level: LogLevel = LogLevel.INFO,
    file: Path | None = None,
    screen: Callable[..., Any] | None = None,
) -> None:
    """Set the form of all log lines of this process; by default JSON unless standard error is a terminal.

    With `file` they are appended there, as lines, until the process ends. `screen` is a last processor of structlog,
    which shows events in its own way and drops them.
    """
    if as_json is None:
        as_json = file is not None or not sys.stderr.isatty()
    output = sys.stderr if file is None else file.open("a", encoding="utf-8", buffering=1)
    # Libraries log nothing: py4j would write stack traces of a JVM that is gone, for which there is an error of ours.
    logging.getLogger().addHandler(logging.NullHandler())
    console = structlog.dev.ConsoleRenderer(colors=file is None and sys.stderr.isatty())
    renderer = structlog.processors.JSONRenderer() if as_json else console
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer if screen is None else screen,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level.number),
        logger_factory=structlog.PrintLoggerFactory(output),
    )
