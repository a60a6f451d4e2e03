"""Errors for the person who meets them: a code, what was found, what was expected, what to do next.

    BackfillError
    ├── ConfigError           what the user wrote (configuration, job, command line) can't work
    ├── InputError            the upstream topic holds something the contract forbids
    ├── TopicError            a topic is missing, or is not what it was declared to be
    ├── StateError            our own durable state is missing, foreign or damaged
    ├── EnvironmentProblem    the machine lacks something (Java, a jar, memory, a broker)
    ├── LawViolation          `verify` found an output that breaks the law
    ├── CommitConflict        another process committed first: read again before doing anything
    ├── Fenced                ... and that process is a newer instance of this service: stop
    └── OutcomeUnknown        a commit may or may not have happened: read back before doing anything

A message never holds a payload or a secret: it names the location (`topic-partition@offset`) where the
reader finds it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from schemas.error_table import TABLE, filled
from schemas.error_table import Code as Code


class BackfillError(Exception):
    """Base of every error that this package raises on purpose; `str()` is one printable line.

    `where` is a location: `topic-partition@offset`, a file, `file:line`, a key path. What was expected
    and the next step are those of the code in `error_table.TABLE`, with `values` for their placeholders, unless they
    are given: only where the table's do not fit.
    """

    exit_status: ClassVar[int] = 1

    def __init__(
        self,
        code: Code,
        *,
        found: str,
        where: str | None = None,
        expected: str | None = None,
        next_step: str | None = None,
        **values: object,
    ) -> None:
        self.code, self.found, self.where = code, found, where
        self.expected = filled(TABLE[code].expected, values) if expected is None else expected
        self.next_step = filled(TABLE[code].next_step, values) if next_step is None else next_step
        super().__init__(f"{self.summary}; next: {self.next_step}")

    def __init_subclass__(cls, *, exit_status: int) -> None:
        cls.exit_status = exit_status

    @property
    def summary(self) -> str:
        """The line without the next step, for those who show that by itself."""
        at = f" at {self.where}" if self.where else ""
        return f"{self.code}{at}: found {self.found}; expected {self.expected}"

    @property
    def texts(self) -> dict[str, Any]:
        """The texts by their names: `where`, `found`, `expected`, `next_step`."""
        return {name: getattr(self, name) for name in ("where", "found", "expected", "next_step")}

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders (Spark workers) by pickle, which would call __init__ positionally.
        return (partial(type(self), self.code, **self.texts), ())


class ConfigError(BackfillError, exit_status=2):
    """The user's configuration, job or command line can't work as written."""


class Fenced(BackfillError, exit_status=3):
    """A newer instance took over; nothing may be written any more, not even a clean-up."""


class InputError(BackfillError, exit_status=4):
    """The upstream topic holds something that the contract forbids."""


class TopicError(BackfillError, exit_status=5):
    """A topic is missing, or is not what it was declared to be."""


class StateError(BackfillError, exit_status=6):
    """Our own durable state is missing, foreign or damaged."""


class EnvironmentProblem(BackfillError, exit_status=7):
    """The machine lacks something: Java, a jar, memory, a broker."""


class LawViolation(BackfillError, exit_status=8):
    """An output breaks the law."""


class CommitConflict(BackfillError, exit_status=6):
    """A conditional commit was refused: the table moved on since it was read."""


class OutcomeUnknown(BackfillError, exit_status=6):
    """The commit's answer was lost. Never retry blindly: look at what is there first."""
