"""Status of a job and of its parts, as the API answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.epoch import unix_ms_from_epoch
from schemas.job import JobDefinition
from schemas.kinds.projection import key_of
from state.values.progress import Completed, InProgress, Progress
from streaming.control.state_view import JobView
from streaming.core.forecast import Forecast
from streaming.observe.hour.job_records import JobRecord
from streaming.observe.models import JobStatus, VnodeStatus


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
