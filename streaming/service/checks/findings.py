"""Results of checks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from schemas.errors import BackfillError


class Grade(StrEnum):
    """`WARNING`: the service runs, and something may come of it; `UNKNOWN`: it could not be checked."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: the subject of a check, its result, and the next step if it is not in order.

    A failed one has the `error` that ends a start.
    """

    subject: str
    verdict: Grade
    found: str
    next_step: str | None = None
    error: BackfillError | None = None

    @classmethod
    def ok(cls, subject: str, found: str) -> Finding:
        """It is in order."""
        return cls(subject, Grade.OK, found)

    @classmethod
    def warning(cls, subject: str, found: str, next_step: str) -> Finding:
        """The service runs all the same."""
        return cls(subject, Grade.WARNING, found, next_step)

    @classmethod
    def of(cls, subject: str, error: BackfillError) -> Finding:
        """An error, which ends a start."""
        return cls(subject, Grade.FAILED, error.summary, error.next_step, error)

    @classmethod
    def by(cls, subject: str, check: Callable[[], object], found: str) -> Finding:
        """The result of a check that raises BackfillError; `found` is its text if it raises none."""
        try:
            check()
        except BackfillError as error:
            return cls.of(subject, error)
        return cls.ok(subject, found)

    @property
    def shown(self) -> dict[str, str | int | None]:
        """The finding as JSON values; `code` and `exit_status` are those of the error."""
        error = self.error
        return {
            "subject": self.subject,
            "verdict": self.verdict.value,
            "found": self.found,
            "next_step": self.next_step,
            "code": None if error is None else error.code.value,
            "exit_status": None if error is None else error.exit_status,
        }


def worst(findings: Iterable[Finding]) -> Grade:
    """The worst grade among them."""
    order = (Grade.FAILED, Grade.UNKNOWN, Grade.WARNING)
    verdicts = {finding.verdict for finding in findings}
    return next((verdict for verdict in order if verdict in verdicts), Grade.OK)
