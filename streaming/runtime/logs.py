"""Log lines: one a batch at info, readable on a terminal, JSON where another program reads them.

They go to standard error, since standard output belongs to what a command was asked for. Fields hold places,
counts and times; never a key, a row or a secret.
"""

from __future__ import annotations

import logging
import sys

import structlog


def configure(*, as_json: bool | None = None, level: int = logging.INFO) -> None:
    """Set the form of all log lines of this process; by default JSON unless standard error is a terminal."""
    if as_json is None:
        as_json = not sys.stderr.isatty()
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
