"""One line about a running service: outputs, how far they are behind, rates, and what is under way."""

from __future__ import annotations

from rich.text import Text

from streaming.cli.jobs.watching import seconds_text
from streaming.core.forecast import DONE
from streaming.core.health import HealthCondition
from streaming.observe.models import JobStatus, Status

_NAME = 20
"""Most characters of a job's name."""
_Forms = tuple[str, ...]
"""A part of the line, from its longest form to its shortest."""
_FINE = (HealthCondition.SERVING, HealthCondition.CATCHING_UP)


def status_line(status: Status, width: int) -> Text:
    """The line, cut to `width` columns. Figures that are not known now are left out."""
    code = "" if status.reason is None else f": {status.reason.code}"
    is_fine = status.ready and status.condition in _FINE
    line = Text.assemble(("● ", "green" if is_fine else "yellow"), f"{status.condition}{code}")
    for forms in _parts(status) if is_fine else _trouble(status):
        room = width - line.cell_len - 3
        line.append(next((f" · {form}" for form in forms if len(form) <= room), ""))
    line.truncate(width, overflow="ellipsis")
    return line


def _trouble(status: Status) -> list[_Forms]:
    parts: list[_Forms] = [] if status.step is None else [(status.step,)]
    if status.batch_age_s is not None:
        parts.append((f"no batch for {seconds_text(status.batch_age_s)}",))
    return parts


def _parts(status: Status) -> list[_Forms]:
    count = len(status.jobs)
    parts: list[_Forms] = [(f"{count} outputs" if count != 1 else "1 output",) if count else ("no job yet",)]
    if status.barrier_age_s is not None:
        parts.append((f"{status.barrier_age_s:.1f} s behind",))
    under_way = [job for job in status.jobs if job.phase not in (*DONE, "starting")]
    if under_way:
        more = f" and {len(under_way) - 1} more" if len(under_way) > 1 else ""
        parts.append(tuple(f"{form}{more}" for form in _job(under_way[0])))
    if status.changes_per_s is not None:
        parts.append((f"{status.changes_per_s:,.0f} changes/s",))
    return parts


def _job(job: JobStatus) -> _Forms:
    name = job.name if len(job.name) <= _NAME else f"{job.name[: _NAME - 1]}…"
    begin = f"{name} {job.share:.1%}"
    if job.phase != "backfilling":
        return f"{begin}, {job.phase}", begin
    rate = "" if job.rows_per_s is None else f", {job.rows_per_s:,.0f} rows/s"
    left = "" if job.seconds_left is None else f", {seconds_text(job.seconds_left)} left"
    return f"{begin}{rate}{left}", f"{begin}{left}", begin
