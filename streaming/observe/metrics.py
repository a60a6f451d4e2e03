"""Prometheus metrics of a running service, with RisingWave's names where it has one (`stream_backfill_*`).

Counters count from the start of the process, as Prometheus expects; `rate()` makes speeds of them. Labels are names of
jobs, steps and partitions: few, and none of them data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from schemas.epoch import unix_ms_from_epoch
from streaming.core.health import HealthCondition
from streaming.observe.models import Status
from streaming.protocol.report import BatchReport

_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 10, 30, 60, 300)
_STEP_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)

_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "stream_backfill_snapshot_read_row_count": ("Snapshot rows read.", "job"),
    "stream_backfill_upstream_output_row_count": ("Live changes sent.", "job"),
    "backfill_snapshot_sent_rows": ("Snapshot rows sent, after the filter.", "job"),
    "backfill_upstream_changes": ("Changes read from the upstream.",),
    "backfill_barriers": ("Barriers that are done.",),
    "backfill_redelivered_records": ("Upstream records that came again.",),
    "backfill_ignored_records": (
        "Upstream records that say nothing of the table: null values of append, heartbeats.",
    ),
    "backfill_parked_records": ("Invalid records in the dead letters.",),
    "backfill_lanes_already_sent": ("Lanes that found their batch in the output.",),
    "backfill_lanes_tried_again": ("Attempts that were aborted, fenced or of unknown end.", "code"),
    "backfill_interruptions": ("Troubles that passed.", "code"),
}
_GAUGES: Mapping[str, tuple[str, ...]] = {
    "backfill_progress_ratio": ("Of the snapshot's rows that were read.", "job"),
    "backfill_rate_limit_rows": ("Snapshot rows per second; -1 for no limit.", "job"),
    "backfill_vnodes": ("Vnodes by state.", "job", "state"),
    "backfill_partition_age_seconds": ("Age of the newest barrier.", "partition"),
    "backfill_partition_waiting_barriers": ("Barriers waiting for others.", "partition"),
    "backfill_replica_rows": ("Rows in the replica's base.",),
    "backfill_replica_log_rows": ("Changes that wait to be compacted into the base.",),
    "backfill_replica_log_files": ("Files of the replica's log.",),
    "backfill_compaction_age_seconds": ("Age of the barrier that the base holds.",),
    "backfill_initial_rows": ("Rows read of the table that the state starts from; 0 once it is there.",),
    "backfill_initial_rows_of": ("Rows of that table; of a database an estimate.",),
    "backfill_initial_trouble": ("1 while the reading of a database waits for something.",),
    "backfill_epoch": ("Epoch of the last barrier that is done.",),
    "backfill_condition": ("1 for the condition that it is in.", "condition"),
    "backfill_suspended": ("1 while a fault of the table suspends it.",),
    "backfill_suspended_times": ("How many times in a row by this fault; 0 while it is not suspended.",),
    "backfill_ready": ("1 while barriers come out, as /readyz tells.",),
    "backfill_last_batch_age_seconds": ("Time since the end of the last batch.",),
    "backfill_upstream_unstable_records": ("Records behind the last stable offset.", "partition"),
    "backfill_upstream_held_seconds": (
        "For how long an open transaction has held the last stable offset.",
        "partition",
    ),
    "backfill_retention_margin_seconds": ("Until unread records may be deleted.", "partition"),
    "backfill_absent_columns": ("Columns that none of the last 10,000 rows had that were looked at.",),
    "backfill_undeclared_fields": ("Fields of rows that are no columns.",),
    "backfill_maintenance_failures": ("Failures in a row of the work beside the batches.", "work"),
    "backfill_maintenance_running_seconds": (
        "For how long it has been under way; 0 if it is not.",
        "work",
    ),
    "backfill_state_bytes": ("What the state takes, by what it holds.", "part"),
    "backfill_disk_free_bytes": ("Free on the disk of the state, and of rows by key.", "disk"),
    "backfill_disk_low": ("1 while less is free than this disk may need.", "disk"),
}
"""Meaning and labels by name, in the order of the exposition."""
_OF_LABELS_THAT_GO = ("job", "partition", "work")
"""Labels whose gauges are cleared before each exposition: their jobs, partitions and works may be gone."""
_STATE_PARTS = ("base", "log", "journal", "progress", "initial", "rows")
"""Of `DiskStatus`, by what they hold."""


class Metrics:
    """`note` after each batch, by the stream's thread; `text` by the thread that serves them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(name, text, labels, registry=self.registry)
            for name, (text, *labels) in _COUNTERS.items()
        }
        self._barrier_s = Histogram(
            "backfill_barrier_latency_seconds",
            "From a barrier's injection to its being readable in the outputs.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        self._step_s = Histogram(
            "backfill_batch_step_seconds",
            "Time of a batch, by step.",
            ("step",),
            registry=self.registry,
            buckets=_STEP_SECONDS,
        )
        self._gauges = {
            name: Gauge(name, text, labels, registry=self.registry)
            for name, (text, *labels) in _GAUGES.items()
        }

    def note(self, report: BatchReport, latencies_s: Sequence[float]) -> None:
        """Take a batch into account, and for each of its barriers the seconds since its injection."""
        for name, rows in report.snapshot_rows.items():
            self._count("stream_backfill_snapshot_read_row_count", rows, name)
        for name, rows in report.sent_snapshot.items():
            self._count("backfill_snapshot_sent_rows", rows, name)
        for name, rows in report.sent_live.items():
            self._count("stream_backfill_upstream_output_row_count", rows, name)
        self._count("backfill_upstream_changes", report.changes)
        self._count("backfill_barriers", len(report.plan.barriers))
        self._count("backfill_lanes_already_sent", report.already_sent)
        self._count("backfill_redelivered_records", report.redelivered)
        self._count("backfill_ignored_records", report.ignored)
        self._count("backfill_parked_records", len(report.plan.parked))
        for code in report.retry_reasons:
            self._count("backfill_lanes_tried_again", 1, code)
        for latency_s in latencies_s:
            self._barrier_s.observe(latency_s)
        for step, took_ms in report.step_ms.items():
            self._step_s.labels(step).observe(took_ms / 1_000)
        files = report.files
        self._set("backfill_epoch", report.plan.epoch)
        self._set("backfill_replica_rows", files.base_rows)
        self._set("backfill_replica_log_rows", files.log_rows)
        self._set("backfill_replica_log_files", len(files.log))
        if files.compacted_epoch:
            behind_ms = unix_ms_from_epoch(report.plan.epoch) - unix_ms_from_epoch(files.compacted_epoch)
            self._set("backfill_compaction_age_seconds", behind_ms / 1_000 + latencies_s[-1])

    def interrupted(self, code: str) -> None:
        """Count an interruption of the service, by the code of its error."""
        self._count("backfill_interruptions", 1, code)

    def text(self, status: Status) -> bytes:
        """The exposition, with gauges as of this status."""
        for name, (_, *labels) in _GAUGES.items():
            if labels and labels[0] in _OF_LABELS_THAT_GO:
                self._gauges[name].clear()
        self._set_service(status)
        self._set_jobs(status)
        self._set_partitions(status)
        self._set_state(status)
        return generate_latest(self.registry)

    def _count(self, name: str, count: float, *labels: str) -> None:
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(count)

    def _set(self, name: str, value: float | None, *labels: str) -> None:
        """Set a gauge; without a value to NaN, as Prometheus has it."""
        gauge = self._gauges[name]
        (gauge.labels(*labels) if labels else gauge).set(float("nan") if value is None else value)

    def _set_service(self, status: Status) -> None:
        for condition in HealthCondition:
            name = condition.replace(" ", "_")
            self._set("backfill_condition", condition == status.condition, name)
        self._set("backfill_ready", status.ready)
        suspended = status.condition is HealthCondition.SUSPENDED
        times = status.last_end.times if suspended and status.last_end is not None else 0
        self._set("backfill_suspended", suspended)
        self._set("backfill_suspended_times", times)
        self._set("backfill_last_batch_age_seconds", status.batch_age_s)
        self._set("backfill_absent_columns", len(status.fields.lost) + len(status.fields.never))
        self._set("backfill_undeclared_fields", len(status.fields.undeclared) + status.fields.more)
        reading, copy = status.reading, status.initial
        rows, of = (reading.rows, reading.of) if reading else (copy.copied, copy.of) if copy else (0, 0)
        self._set("backfill_initial_rows", rows)
        self._set("backfill_initial_rows_of", of)
        self._set("backfill_initial_trouble", reading is not None and reading.trouble is not None)

    def _set_jobs(self, status: Status) -> None:
        for job in status.jobs:
            self._set("backfill_progress_ratio", job.share, job.name)
            self._set("backfill_rate_limit_rows", -1 if job.rate_limit is None else job.rate_limit, job.name)
            untouched = job.parts - job.vnodes_done - job.vnodes_in_progress
            self._set("backfill_vnodes", job.vnodes_done, job.name, "completed")
            self._set("backfill_vnodes", job.vnodes_in_progress, job.name, "in_progress")
            self._set("backfill_vnodes", untouched, job.name, "not_started")

    def _set_partitions(self, status: Status) -> None:
        for each in status.partitions:
            number = str(each.partition)
            self._set("backfill_partition_waiting_barriers", each.barriers_waiting, number)
            self._set("backfill_upstream_held_seconds", each.held_s or 0.0, number)
            if each.margin_s is not None:
                self._set("backfill_retention_margin_seconds", each.margin_s, number)
            if each.age_s is not None:
                self._set("backfill_partition_age_seconds", each.age_s, number)
            if each.unstable is not None:
                self._set("backfill_upstream_unstable_records", each.unstable, number)

    def _set_state(self, status: Status) -> None:
        for each in status.maintenance:
            work = each.work.replace(" ", "_")
            self._set("backfill_maintenance_failures", each.failures, work)
            self._set("backfill_maintenance_running_seconds", each.running_s or 0.0, work)
        disk = status.disk
        for part in _STATE_PARTS:
            self._set("backfill_state_bytes", None if disk is None else getattr(disk, f"{part}_bytes"), part)
        self._set("backfill_disk_free_bytes", None if disk is None else disk.free_bytes, "state")
        self._set("backfill_disk_free_bytes", None if disk is None else disk.rows_free_bytes, "rows")
        self._set("backfill_disk_low", disk is not None and disk.is_low, "state")
        self._set("backfill_disk_low", disk is not None and disk.rows_low, "rows")
