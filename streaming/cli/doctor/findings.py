"""Results of checks, and the rights that a configuration needs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from schemas.errors import BackfillError
from schemas.settings.config import ServiceConfig
from schemas.topics import DEAD_LETTERS_SUFFIX


class Grade(StrEnum):
    """`WARNING`: the service runs, and something may come of it; `UNKNOWN`: it could not be checked."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line: the subject of a check, its result, and the next step if it is not in order."""

    subject: str
    verdict: Grade
    found: str
    next_step: str | None = None

    @classmethod
    def ok(cls, subject: str, found: str) -> Diagnosis:
        """It is in order."""
        return cls(subject, Grade.OK, found)

    @classmethod
    def of(cls, subject: str, error: BackfillError) -> Diagnosis:
        """An error as it would end the service."""
        at = f" at {error.where}" if error.where else ""
        return cls(subject, Grade.FAILED, f"{error.code}{at}: {error.found}", error.next_step)

    @classmethod
    def by(cls, subject: str, check: Callable[[], object], found: str | None = None) -> Diagnosis:
        """The result of a check that raises BackfillError; `found` is by default the text of what it returns."""
        try:
            result = check()
        except BackfillError as error:
            return cls.of(subject, error)
        return cls.ok(subject, str(result) if found is None else found)


@dataclass(frozen=True, slots=True)
class TopicNeed:
    """A topic that is used, with the operations on it (`READ`); whether it has to be there, for who else makes it."""

    topic: str
    operations: frozenset[str]
    must_exist: bool = False

    def lacking(self, granted: Collection[str]) -> list[str]:
        """The operations that are not granted, in order."""
        return sorted(self.operations - set(granted))


_READ, _WRITE = frozenset({"READ", "DESCRIBE"}), frozenset({"WRITE", "DESCRIBE"})
_SETTINGS = frozenset({"DESCRIBE_CONFIGS"})


def topic_needs(config: ServiceConfig) -> tuple[TopicNeed, ...]:
    """Every topic of a configuration with what `run` does with it: the tables of docs/security.md, without Create.

    Outputs are those of the configuration; jobs that were created since have the like.
    """
    topics, injects = config.topics, config.barriers.injects
    inline = topics.barriers is None
    upstream = _READ | (_SETTINGS if inline else set()) | (_WRITE if inline and injects else set())
    needs = [TopicNeed(topics.data, upstream, must_exist=True)]
    if topics.barriers is not None:
        needs.append(TopicNeed(topics.barriers, _READ | _WRITE if injects else _READ, must_exist=not injects))
    if injects:
        needs.append(TopicNeed(topics.control, _READ))
    for job in config.jobs:
        needs.append(TopicNeed(job.output, _READ | _WRITE | _SETTINGS))
        if job.barrier_topic is not None:
            needs.append(TopicNeed(job.barrier_topic, _READ | _WRITE | _SETTINGS))
        if config.on_bad_record == "park":
            needs.append(TopicNeed(f"{job.output}{DEAD_LETTERS_SUFFIX}", _WRITE | _SETTINGS))
    return tuple(needs)


def worst(findings: Iterable[Diagnosis]) -> Grade:
    """The worst grade among them."""
    order = (Grade.FAILED, Grade.UNKNOWN, Grade.WARNING)
    verdicts = {finding.verdict for finding in findings}
    return next((verdict for verdict in order if verdict in verdicts), Grade.OK)
