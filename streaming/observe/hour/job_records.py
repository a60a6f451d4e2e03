"""Records of jobs: their phases with the times since when, and how many records were sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from state.small_files import SentCount
from streaming.control.state_view import JobView
from streaming.core.forecast import DONE, Phase, Rate
from streaming.service.events import EventKind, ServiceEvent


@dataclass(slots=True)
class JobRecord:
    """One job. `phase_since` is None where the phase began before this process."""

    since: float
    phase: Phase
    phase_since: float | None
    sent: int = 0
    sent_rate: Rate = field(default_factory=Rate)


class JobRecords:
    """All jobs; one that was created again under its name starts anew."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], JobRecord] = {}
        self._kept: Mapping[str, SentCount] = {}

    def go_on_from(self, kept: Mapping[str, SentCount]) -> None:
        """Take the counts of earlier processes into account, for the jobs that are noted from now on."""
        self._kept = kept

    def counts(self) -> dict[str, SentCount]:
        """The counts that a later process goes on from, by job."""
        return {
            name: SentCount(start, record.since, record.sent)
            for (name, start), record in self._records.items()
        }

    def of(self, view: JobView) -> JobRecord:
        """The record of a job that was noted."""
        return self._records[view.name, view.state.start]

    def note(self, views: Iterable[JobView], now: float, *, at_start: bool) -> list[ServiceEvent]:
        """Take the jobs after a batch into account, or those that a start has found. What has happened to them."""
        known, self._records, events = self._records, {}, list[ServiceEvent]()
        for view in views:
            key, since = (view.name, view.state.start), None if at_start else now
            record = self._records[key] = known.get(key) or self._begun(view, now, since)
            if record.phase != view.phase:
                if view.phase in DONE:
                    events.append(ServiceEvent(now, EventKind.COMPLETED, "", job=view.name))
                record.phase, record.phase_since = view.phase, since
        return events

    def _begun(self, view: JobView, now: float, phase_since: float | None) -> JobRecord:
        kept = self._kept.get(view.name)
        if kept is None or kept.start != view.state.start:
            return JobRecord(now, view.phase, phase_since)
        return JobRecord(kept.since, view.phase, phase_since, kept.sent)

    def count(self, sent: Mapping[str, int], steady_ms: int) -> None:
        """Add records that a batch has sent, by name, at a time of a clock that is never set."""
        for (name, _), record in self._records.items():
            record.sent += sent.get(name, 0)
            record.sent_rate.note(steady_ms, record.sent)

    def forget_rates(self) -> None:
        """Begin all rates anew, after an outage."""
        for record in self._records.values():
            record.sent_rate.forget()
