"""Prometheus metrics of a running service, with RisingWave's names where it has one (`stream_backfill_*`).

Counters count from the start of the process, as Prometheus expects; `rate()` makes speeds of them. Labels are names of
jobs, steps and partitions: few, and none of them data.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from schemas.epoch import unix_ms_from_epoch
from streaming.core.health import HealthCondition
from streaming.observe.models import Status
from streaming.protocol.report import BatchReport

_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 10, 30, 60, 300)
_STEP_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
_RECORDS = {
    "redelivered": "Upstream records that came again.",
    "ignored": "Upstream records that say nothing of the table: null values of append, heartbeats.",
    "parked": "Records at fault in the dead letters.",
}
"""Of the upstream that are left out, by what they are."""

_INITIAL = {
    "rows": "Rows read of the table that the state starts from; 0 once it is there.",
    "rows_of": "Rows of that table; of a database an estimate.",
    "trouble": "1 while the reading of a database waits for something.",
}
"""Of the table that the state starts from."""

_STATE_PARTS = ("base", "log", "journal", "progress", "initial", "rows")
"""Of `DiskStatus`, by what they hold."""


class Metrics:
    """`note` after each batch, by the stream's thread; `text` by the thread that serves them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels, registry=registry, buckets=buckets)

        self._snapshot = counter("stream_backfill_snapshot_read_row_count", "Snapshot rows read.", "job")
        self._live = counter("stream_backfill_upstream_output_row_count", "Live changes sent.", "job")
        self._sent = counter("backfill_snapshot_sent_rows", "Snapshot rows sent, after the filter.", "job")
        self._changes = counter("backfill_upstream_changes", "Changes read from the upstream.")
        self._barriers = counter("backfill_barriers", "Barriers that are done.")
        self._records = {kind: counter(f"backfill_{kind}_records", text) for kind, text in _RECORDS.items()}
        self._again = counter("backfill_lanes_already_sent", "Lanes that found their batch in the output.")
        self._hindered = counter(
            "backfill_lanes_tried_again", "Attempts that were aborted, fenced or of unknown end.", "code"
        )
        self._interruptions = counter("backfill_interruptions", "Troubles that passed.", "code")
        self._barrier_s = histogram(
            "backfill_barrier_latency_seconds",
            "From a barrier's injection to its being readable in the outputs.",
            _SECONDS,
        )
        self._step_s = histogram(
            "backfill_batch_step_seconds", "Time of a batch, by step.", _STEP_SECONDS, "step"
        )
        self._share = gauge("backfill_progress_ratio", "Of the snapshot's rows that were read.", "job")
        self._limit = gauge("backfill_rate_limit_rows", "Snapshot rows per second; -1 for no limit.", "job")
        self._vnodes = gauge("backfill_vnodes", "Vnodes by state.", "job", "state")
        self._behind = gauge("backfill_partition_age_seconds", "Age of the newest barrier.", "partition")
        self._waiting = gauge(
            "backfill_partition_waiting_barriers", "Barriers waiting for others.", "partition"
        )
        self._replica = gauge("backfill_replica_rows", "Rows in the replica's base.")
        self._log = gauge("backfill_replica_log_rows", "Changes that wait to be compacted into the base.")
        self._log_files = gauge("backfill_replica_log_files", "Files of the replica's log.")
        self._compaction_age = gauge(
            "backfill_compaction_age_seconds", "Age of the barrier that the base holds."
        )
        self._initial = {kind: gauge(f"backfill_initial_{kind}", text) for kind, text in _INITIAL.items()}
        self._epoch = gauge("backfill_epoch", "Epoch of the last barrier that is done.")
        self._condition = gauge("backfill_condition", "1 for the condition that it is in.", "condition")
        self._ready = gauge("backfill_ready", "1 while barriers come out, as /readyz tells.")
        self._idle = gauge("backfill_last_batch_age_seconds", "Time since the end of the last batch.")
        self._unstable = gauge(
            "backfill_upstream_unstable_records", "Records behind the last stable offset.", "partition"
        )
        self._held = gauge(
            "backfill_upstream_held_seconds",
            "For how long an open transaction has held the last stable offset.",
            "partition",
        )
        self._margin = gauge(
            "backfill_retention_margin_seconds", "Until unread records may be deleted.", "partition"
        )
        self._absent = gauge(
            "backfill_absent_columns", "Columns that none of the last 10,000 rows had that were looked at."
        )
        self._undeclared = gauge("backfill_undeclared_fields", "Fields of rows that are no columns.")
        self._state = _StateGauges(registry)

    def note(self, report: BatchReport, latencies_s: Sequence[float]) -> None:
        """Take a batch into account, and for each of its barriers the seconds since its injection."""
        for name, rows in report.snapshot_rows.items():
            self._snapshot.labels(name).inc(rows)
        for name, rows in report.sent_snapshot.items():
            self._sent.labels(name).inc(rows)
        for name, rows in report.sent_live.items():
            self._live.labels(name).inc(rows)
        self._changes.inc(report.changes)
        self._barriers.inc(len(report.plan.barriers))
        self._again.inc(report.already_sent)
        self._records["redelivered"].inc(report.redelivered)
        self._records["ignored"].inc(report.ignored)
        for code in report.hindrances:
            self._hindered.labels(code).inc()
        self._records["parked"].inc(len(report.plan.parked))
        for latency_s in latencies_s:
            self._barrier_s.observe(latency_s)
        for step, took_ms in report.step_ms.items():
            self._step_s.labels(step).observe(took_ms / 1_000)
        self._epoch.set(report.plan.epoch)
        files = report.files
        self._replica.set(files.base_rows)
        self._log.set(files.log_rows)
        self._log_files.set(len(files.log))
        if files.compacted_epoch:
            behind_ms = unix_ms_from_epoch(report.plan.epoch) - unix_ms_from_epoch(files.compacted_epoch)
            self._compaction_age.set(behind_ms / 1_000 + latencies_s[-1])

    def interrupted(self, code: str) -> None:
        """Count an interruption of the service, by the code of its error."""
        self._interruptions.labels(code).inc()

    def text(self, status: Status) -> bytes:
        """The exposition, with gauges as of this status."""
        for labelled in (self._share, self._limit, self._vnodes):
            labelled.clear()
        self._show_health(status)
        self._state.show(status)
        for job in status.jobs:
            self._share.labels(job.name).set(job.share)
            self._limit.labels(job.name).set(-1 if job.rate_limit is None else job.rate_limit)
            untouched = job.parts - job.vnodes_done - job.vnodes_in_progress
            self._vnodes.labels(job.name, "completed").set(job.vnodes_done)
            self._vnodes.labels(job.name, "in_progress").set(job.vnodes_in_progress)
            self._vnodes.labels(job.name, "not_started").set(untouched)
        return generate_latest(self.registry)

    def _show_health(self, status: Status) -> None:
        for condition in HealthCondition:
            self._condition.labels(condition.replace(" ", "_")).set(condition == status.condition)
        self._ready.set(status.ready)
        self._absent.set(len(status.fields.lost) + len(status.fields.never))
        self._undeclared.set(len(status.fields.undeclared) + status.fields.more)
        reading, copy = status.reading, status.initial
        rows, of = (reading.rows, reading.of) if reading else (copy.copied, copy.of) if copy else (0, 0)
        self._initial["rows"].set(rows)
        self._initial["rows_of"].set(_known(of))
        self._initial["trouble"].set(reading is not None and reading.trouble is not None)
        self._idle.set(_known(status.batch_age_s))
        for labelled in (self._behind, self._waiting, self._unstable, self._held, self._margin):
            labelled.clear()
        for partition in status.partitions:
            number = str(partition.partition)
            self._waiting.labels(number).set(partition.barriers_waiting)
            self._held.labels(number).set(partition.held_s or 0.0)
            if partition.margin_s is not None:
                self._margin.labels(number).set(partition.margin_s)
            if partition.age_s is not None:
                self._behind.labels(number).set(partition.age_s)
            if partition.unstable is not None:
                self._unstable.labels(number).set(partition.unstable)


class _StateGauges:
    """What work beside the batches does, and what the state takes; NaN where that is not known."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self._failures = gauge(
            "backfill_maintenance_failures", "Failures in a row of the work beside the batches.", "work"
        )
        self._running = gauge(
            "backfill_maintenance_running_seconds",
            "For how long it has been under way; 0 if it is not.",
            "work",
        )
        self._parts = gauge("backfill_state_bytes", "What the state takes, by what it holds.", "part")
        self._free = gauge(
            "backfill_disk_free_bytes", "Free on the disk of the state, and of rows by key.", "disk"
        )
        self._low = gauge("backfill_disk_low", "1 while less is free than this disk may need.", "disk")

    def show(self, status: Status) -> None:
        for labelled in (self._failures, self._running):
            labelled.clear()
        for each in status.maintenance:
            work = each.work.replace(" ", "_")
            self._failures.labels(work).set(each.failures)
            self._running.labels(work).set(each.running_s or 0.0)
        disk = status.disk
        for part in _STATE_PARTS:
            self._parts.labels(part).set(_known(None if disk is None else getattr(disk, f"{part}_bytes")))
        self._free.labels("state").set(_known(None if disk is None else disk.free_bytes))
        self._free.labels("rows").set(_known(None if disk is None else disk.rows_free_bytes))
        self._low.labels("state").set(disk is not None and disk.is_low)
        self._low.labels("rows").set(disk is not None and disk.rows_low)


def _known(value: float | None) -> float:
    """NaN, as Prometheus has it, where there is none."""
    return float("nan") if value is None else value
