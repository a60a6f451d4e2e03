"""How far the service is, from its batch reports: what the progress bars and the table of figures show."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from schemas.epoch import unix_ms_from_epoch
from state.values.progress import is_complete
from streaming.protocol.report import BatchReport


@dataclass
class DemoProgress:
    """One job's way through its backfill. `note` is called from the stream's thread, the rest from any.

    Instants are Unix seconds. The replica stands at the end of the first batch; the job reads from then on.
    """

    job: str
    vnode_count: int
    batches: int = 0
    barriers: int = 0
    changes: int = 0
    snapshot_rows: int = 0
    snapshot_sent: int = 0
    live_sent: int = 0
    about_rows: int = 0
    """How many rows the snapshot will read, as the replica's files say; more or less, for changes go on."""
    last_epoch: int = 0
    lag_s: float = 0.0
    """From the last batch's first barrier to its output being readable."""
    replica_at: float | None = None
    complete_at: float | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, report: BatchReport) -> None:
        """Take a batch into account."""
        now = time.time()
        with self._changed:
            self.batches += 1
            self.barriers += len(report.plan.barriers)
            self.changes += report.changes
            self.snapshot_rows += report.snapshot_rows.get(self.job, 0)
            self.snapshot_sent += report.sent_snapshot.get(self.job, 0)
            self.live_sent += report.sent_live.get(self.job, 0)
            self.last_epoch = report.plan.epoch
            self.lag_s = now - unix_ms_from_epoch(report.plan.barriers[0].epoch) / 1_000
            if self.replica_at is None:
                self.replica_at, self.about_rows = now, report.changes
            elif self.complete_at is None:
                self.about_rows = max(report.files.rows, self.snapshot_rows)
                if is_complete(report.progress.get(self.job, {}), self.vnode_count):
                    self.complete_at, self.about_rows = now, self.snapshot_rows
            self._changed.notify_all()

    def await_change(self, timeout_s: float) -> None:
        """Return at the next batch, or when the time is over."""
        with self._changed:
            self._changed.wait(timeout_s)

    def has_passed(self, unix_s: float) -> bool:
        """Whether the output holds everything that was produced before an instant."""
        return self.last_epoch > 0 and unix_ms_from_epoch(self.last_epoch) / 1_000 > unix_s

    @property
    def snapshot_rate(self) -> float:
        """Rows per second that the snapshot has read since the replica stood."""
        if self.replica_at is None:
            return 0.0
        return self.snapshot_rows / max((self.complete_at or time.time()) - self.replica_at, 1e-3)

    @property
    def left_s(self) -> float | None:
        """Seconds until completion at the rate so far; None before there is one."""
        rate = self.snapshot_rate
        return max(self.about_rows - self.snapshot_rows, 0) / rate if rate else None
