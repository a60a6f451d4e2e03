"""The result of `verify`: findings, and the report that holds them.

A finding names a place that the reader can go to, what the law wants there and what is there. It never
holds a value of a row: rows are distinguished by size and a short digest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from schemas.errors import Code
from streaming.reading.entries import Place as Place

MOST_FINDINGS_KEPT = 1000
"""Of each report; all are counted, but a thoroughly broken topic must not fill the memory."""


class Side(StrEnum):
    """Which side broke the contract: the producer of the upstream, or the service."""

    UPSTREAM = "upstream"
    """The producer's duty: the changelog is illegal in itself."""

    OUTPUT = "output"
    """The service's duty: the output is not what the upstream makes it."""


class Rule(StrEnum):
    """Which part of the contract an output breaks."""

    START_NOT_BARRIER = "START_NOT_BARRIER"
    RECORD_MALFORMED = "RECORD_MALFORMED"
    BARRIER_MALFORMED = "BARRIER_MALFORMED"
    BARRIER_MISSING = "BARRIER_MISSING"
    BARRIER_UNKNOWN = "BARRIER_UNKNOWN"
    BARRIER_DIFFERS = "BARRIER_DIFFERS"
    EPOCH_WRONG = "EPOCH_WRONG"
    COLUMN_UNANNOUNCED = "COLUMN_UNANNOUNCED"
    COLUMN_DIFFERS = "COLUMN_DIFFERS"
    DATA_BEHIND_LAST_BARRIER = "DATA_BEHIND_LAST_BARRIER"
    PROGRESS_INVALID = "PROGRESS_INVALID"
    PROGRESS_UNCHANGED = "PROGRESS_UNCHANGED"
    POSITION_FELL = "POSITION_FELL"
    FINISHED_UNSET = "FINISHED_UNSET"
    ROW_COUNT_WRONG = "ROW_COUNT_WRONG"
    MISROUTED = "MISROUTED"
    BEYOND_POSITION = "BEYOND_POSITION"
    LOST = "LOST"
    EXTRA = "EXTRA"
    REORDERED = "REORDERED"
    CHANGED = "CHANGED"
    DIFFERENT = "DIFFERENT"
    INCOMPLETE = "INCOMPLETE"
    DEAD_LETTER_DOUBLED = "DEAD_LETTER_DOUBLED"
    DEAD_LETTER_DIFFERS = "DEAD_LETTER_DIFFERS"
    DEAD_LETTER_UNFOUNDED = "DEAD_LETTER_UNFOUNDED"
    DEAD_LETTER_UNKNOWN = "DEAD_LETTER_UNKNOWN"
    DEAD_LETTER_MISSING = "DEAD_LETTER_MISSING"


@dataclass(frozen=True, slots=True)
class LawFinding:
    """One fault at one place.

    `barrier` is the epoch that closes the interval in question; `vnode` is set where it is about one vnode.
    """

    side: Side
    rule: Rule | Code
    where: Place
    barrier: int | None
    vnode: int | None
    expected: str
    found: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `where` as `topic-partition@offset`."""
        return {**asdict(self), "where": str(self.where)}


class Findings:
    """Counts every finding and keeps the first `limit`."""

    def __init__(self, limit: int = MOST_FINDINGS_KEPT) -> None:
        self.kept: list[LawFinding] = []
        self.counts: Counter[tuple[Side, Rule | Code]] = Counter()
        self._limit = limit

    def add(self, finding: LawFinding) -> None:
        """Count a finding, and keep it if there is room."""
        self.counts[finding.side, finding.rule] += 1
        if len(self.kept) < self._limit:
            self.kept.append(finding)

    def of_output(
        self,
        rule: Rule,
        where: Place,
        expected: str,
        found: str,
        barrier: int | None = None,
        vnode: int | None = None,
    ) -> None:
        """Count a finding on the service's side."""
        self.add(LawFinding(Side.OUTPUT, rule, where, barrier, vnode, expected, found))


@dataclass(frozen=True, slots=True)
class Report:
    """Counts of what was read, and the findings. `clean` is the verdict.

    `start` and `last` are the epochs of the first and last barrier of the output that were judged (None on
    an empty output); `behind` counts the upstream barriers after `last`.
    """

    upstream: str
    output: str
    upstream_records: int
    output_records: int
    barriers: int
    behind: int
    start: int | None
    last: int | None
    live_keys: int
    vnode_count: int
    vnodes_finished: int
    vnodes_in_progress: int
    snapshot_rows: int
    parts: str = "vnodes"
    """The unit of `vnode_count`: `partitions`, for a job that reads the upstream."""
    seconds: float = 0.0
    findings: tuple[LawFinding, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    went_back: tuple[str, ...] = ()
    """Locations where logs of the upstream's databases began anew at lower positions: allowed, so no findings."""

    @property
    def found(self) -> int:
        """The number of findings, those not kept included."""
        return sum(self.counts.values())

    @property
    def clean(self) -> bool:
        """True if there are no findings on either side."""
        return not self.counts

    @property
    def complete(self) -> bool:
        return self.vnodes_finished == self.vnode_count

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the verdict."""
        return {
            **asdict(self),
            "findings": [finding.to_dict() for finding in self.findings],
            "found": self.found,
            "clean": self.clean,
            "complete": self.complete,
        }


def digest(data: bytes) -> str:
    """Size and a short digest: enough to distinguish two rows, too little to read one."""
    return f"{len(data)} bytes #{hashlib.blake2b(data, digest_size=4).hexdigest()}"
