"""The list of checks: `doctor` prints all of it, and a start runs it before Java and again before it owns the state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import structlog

from schemas.errors import BackfillError
from streaming.service.checks import broker, machine, state
from streaming.service.checks.surroundings import Finding, Grade, Surroundings

log = structlog.get_logger(__name__)


class Part(Enum):
    """The times at which a check is looked at, besides by `doctor`, which looks at all."""

    ADVICE = auto()
    """Never: a start meets it by itself, or goes on all the same."""
    START = auto()
    """Before Java starts."""
    TOPICS = auto()
    """Then, and before a state is opened."""
    STATE = auto()
    """Then, and before the state has a new owner, when time has passed or another instance has written to it."""


BEFORE_JAVA = (Part.START, Part.TOPICS, Part.STATE)


@dataclass(frozen=True, slots=True)
class Check:
    """A check by its name, with those that have to be in order before: it is left out if one of them is not.

    `look` gives findings, none where there is nothing to look at, and raises the error that ends a start.
    """

    name: str
    look: Callable[[Surroundings], Iterator[Finding]]
    part: Part
    needs: tuple[str, ...] = ()


def _postgres(found: Surroundings) -> Iterator[Finding]:
    start = found.declared.initial_postgres
    if start is not None:
        # psycopg takes a fifth of a second to import, which others should not pay.
        from streaming.service.checks import postgres

        yield from postgres.findings(found.declared, start)


def _records(found: Surroundings) -> Iterator[Finding]:
    if not found.has_finished_batch:
        # Decoders take a third of a second to import, which a restart pays while Java starts.
        from streaming.service.checks import records

        yield from records.findings(found)


CHECKS = (
    Check("java", machine.java, Part.START),
    Check("jars", machine.jars, Part.ADVICE),
    Check("disk", machine.disks, Part.ADVICE),
    Check("http.listen", machine.page, Part.START),
    Check("spark", machine.spark_secrets, Part.START),
    Check("hash keys", machine.hash_keys, Part.START),
    Check("state", state.folder, Part.START),
    Check("broker", broker.reached, Part.START),
    Check("topics", partial(broker.rights, broker.upstream_needs), Part.START, ("broker",)),
    Check("further topics", partial(broker.rights, broker.other_needs), Part.START, ("broker",)),
    Check("transactions", broker.transactions, Part.ADVICE, ("broker",)),
    Check("upstream", broker.upstream, Part.TOPICS, ("topics",)),
    Check("clock", broker.clock, Part.ADVICE, ("upstream",)),
    Check("partitions", broker.partitions, Part.TOPICS, ("upstream",)),
    Check("barrier topic", broker.barriers, Part.START, ("upstream",)),
    Check("outputs", broker.outputs, Part.TOPICS, ("upstream", "further topics")),
    Check("registry", machine.registry, Part.ADVICE),
    Check("tables", state.tables, Part.STATE, ("state", "partitions")),
    Check("owner", state.owner, Part.ADVICE, ("tables",)),
    Check("binding", state.binding, Part.STATE, ("tables",)),
    Check("initial", state.start, Part.STATE, ("binding",)),
    Check("jobs", state.jobs, Part.START, ("binding",)),
    Check("outputs by partition", broker.outputs_by_partition, Part.STATE, ("binding", "further topics")),
    Check("unread records", broker.unread, Part.STATE, ("initial",)),
    Check("unused outputs", broker.unused, Part.STATE, ("binding", "outputs", "outputs by partition")),
    Check("records", _records, Part.START, ("unread records",)),
    Check("postgres", _postgres, Part.ADVICE),
)
"""In the order of a start: of several errors it ends with the first."""


def look(found: Surroundings, parts: Collection[Part] = tuple(Part)) -> Iterator[Finding]:
    """Look at the checks of these parts. What needs one that is not in order is left out."""
    open_names = set[str]()
    for check in CHECKS:
        if open_names.intersection(check.needs):
            open_names.add(check.name)
            continue
        if check.part not in parts:
            continue
        for finding in _look(check, found):
            if finding.verdict in (Grade.FAILED, Grade.UNKNOWN):
                open_names.add(check.name)
            yield finding


def _look(check: Check, found: Surroundings) -> Iterator[Finding]:
    try:
        yield from check.look(found)
    except BackfillError as error:
        yield Finding.of(check.name, error)


def require(found: Surroundings, *parts: Part) -> None:
    """Run the checks of these parts as a start does. Raises: BackfillError, the first; warnings go to the log."""
    for finding in look(found, parts):
        if finding.error is not None:
            raise finding.error
        if finding.verdict is Grade.WARNING:
            log.warning("check", subject=finding.subject, found=finding.found, next_step=finding.next_step)
