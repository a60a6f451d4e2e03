"""The last hour of a service, and its jobs as they are (phases, records sent, status), kept in memory for the API.

The hour is a point a second for ten minutes, and before that one in ten seconds: so memory is bounded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from schemas.epoch import unix_ms_from_epoch
from schemas.job import JobDefinition
from schemas.kinds.projection import key_of
from state.small_files import SentCount
from state.values.progress import Completed, InProgress, Progress
from streaming.control.state_view import JobView
from streaming.core.forecast import DONE, Forecast, Phase, Rate
from streaming.observe.models import JobStatus, Point, VnodeStatus
from streaming.service.events import HOUR_S, EventKind, ServiceEvent

_RECENT, _RECENT_S = 600, 1.0
_OLDER, _OLDER_S = 300, 10.0


@dataclass(frozen=True, slots=True)
class Span:
    """One batch, or some one after another: counts are sums, `latency_s`, `behind_s` and `batch_s` the longest.

    `at` is the end of the last one; counts of jobs leave out those without any.
    """

    at: float
    elapsed_s: float
    latency_s: float | None
    behind_s: float | None
    batch_s: float
    changes: int
    rows: Mapping[str, int]
    sent: Mapping[str, int]

    def with_next(self, following: Span) -> Span:
        """Both in one."""
        return Span(
            at=following.at,
            elapsed_s=self.elapsed_s + following.elapsed_s,
            latency_s=_longer(self.latency_s, following.latency_s),
            behind_s=_longer(self.behind_s, following.behind_s),
            batch_s=max(self.batch_s, following.batch_s),
            changes=self.changes + following.changes,
            rows=Counter(self.rows) + Counter(following.rows),
            sent=Counter(self.sent) + Counter(following.sent),
        )

    def point(self) -> Point:
        """The rates of the span."""
        return Point(
            at=self.at,
            latency_s=self.latency_s,
            behind_s=self.behind_s,
            batch_s=self.batch_s,
            changes_per_s=self.changes / self.elapsed_s,
            rows_per_s={name: rows / self.elapsed_s for name, rows in self.rows.items()},
            sent_per_s={name: records / self.elapsed_s for name, records in self.sent.items()},
        )


class History:
    """The spans of the last hour. For one thread at a time."""

    def __init__(self) -> None:
        self._recent = deque[Span]()
        self._older = deque[Span](maxlen=_OLDER)

    def note(self, span: Span) -> None:
        """Add the next batch."""
        _add(self._recent, span, _RECENT_S)
        if len(self._recent) > _RECENT:
            _add(self._older, self._recent.popleft(), _OLDER_S)

    def points(self) -> list[Point]:
        """Oldest first."""
        return [span.point() for span in (*self._older, *self._recent)]

    def most_behind(self, since: float, now: float) -> tuple[float, float] | None:
        """The highest `behind_s` of the last hour, and its time, of spans after `since`."""
        begin = max(since, now - HOUR_S)
        spans = (span for span in (*self._older, *self._recent) if span.at > begin)
        return max(((span.behind_s, span.at) for span in spans if span.behind_s is not None), default=None)


def _longer(one: float | None, other: float | None) -> float | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _add(spans: deque[Span], span: Span, least_s: float) -> None:
    if spans and spans[-1].elapsed_s < least_s:
        spans[-1] = spans[-1].with_next(span)
    else:
        spans.append(span)


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


@dataclass(frozen=True, slots=True)
class Behind:
    """Seconds that a live output is behind, now and at the worst of the hour, which was at a Unix time."""

    now_s: float
    worst_s: float
    worst_at: float


def job_status(
    view: JobView,
    forecast: Forecast,
    record: JobRecord,
    behind: Behind | None,
    now: float,
    *,
    sent_per_s: float | None,
    is_known: bool,
) -> JobStatus:
    """Status of a job as of now. Its rate and the time left are None unless they are known now (`is_known`)."""
    job, definition = view.state, view.state.definition
    left_s, budget_ms = forecast.seconds_left if is_known else None, definition.latency_budget_ms
    return JobStatus(
        name=job.name,
        output=definition.output,
        kind=_kind(definition),
        phase=view.phase,
        phase_since=record.phase_since,
        paused=job.paused,
        paused_by=job.paused_by,
        columns_refused=job.columns_refused,
        rate_limit=job.rate_limit,
        share=forecast.share,
        grew=forecast.grew,
        rows_read=view.extent.rows_read,
        rows_left=view.extent.rows_left,
        sent=record.sent,
        sent_per_s=sent_per_s,
        sent_since=record.since,
        rows_per_s=forecast.rows_per_s if is_known else None,
        seconds_left=left_s,
        done_at=now + left_s if left_s else None,
        behind_s=None if behind is None else behind.now_s,
        worst_behind_s=None if behind is None else behind.worst_s,
        worst_behind_at=None if behind is None else behind.worst_at,
        latency_budget_s=None if budget_ms is None else budget_ms / 1_000,
        parts=definition.part_count,
        part_name=definition.part_name,
        vnodes_done=view.vnodes_done,
        vnodes_in_progress=len(view.progress) - view.vnodes_done,
        start=job.start,
        start_at=unix_ms_from_epoch(job.start) / 1_000,
        filter=definition.filter,
        columns=[column.name for column in definition.columns],
        key=[column.name for column in key_of(definition.columns, definition.key)],
        output_partitions=definition.output_partitions,
        form=definition.form,
        barrier_topic=definition.barrier_topic,
    )


def vnode_status(vnode: int, lane: int, state: Progress | None, stored: int) -> VnodeStatus:
    """Status of one part; `stored` is about how many rows it holds."""
    if isinstance(state, Completed):
        return VnodeStatus(vnode=vnode, lane=lane, state="completed", share=1.0, rows_read=state.row_count)
    if isinstance(state, InProgress):
        share = min(state.row_count / stored, 0.99) if stored else 0.0
        return VnodeStatus(
            vnode=vnode, lane=lane, state="in progress", share=share, rows_read=state.row_count
        )
    return VnodeStatus(vnode=vnode, lane=lane, state="not started", share=0.0, rows_read=0)


def _kind(job: JobDefinition) -> Literal["arrangement", "no-shuffle", "source"]:
    return "source" if job.scan.reads_upstream else "no-shuffle" if job.is_coupled else "arrangement"
