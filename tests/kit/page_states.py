"""States of a service as the status page shows them, each with an hour behind it where it had one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from schemas.errors import Code
from schemas.job import JobDefinition
from state.initial.start import CopyProgress
from state.values.last_end import EndKind, FaultReport, LastEnd
from state.values.plan import JobState
from state.values.progress import Completed, InProgress, Progress
from streaming.core.jobs import MutationReport
from tests.kit.fed_page import AWAY, DISK, QUIET, FedPage, Shown
from tests.kit.reports import TABLE

HOUR_S, EVERY_S = 3_600.0, 5.0
VNODES, ROWS = 4, 300_000
_FORMATS = ("upsert", "debezium", "change", "upsert", "debezium")


def _job(
    fed: FedPage, name: str, format_: str, begin_s: float, until: str | None = None, **over: object
) -> JobState:
    declared = {"name": name, "output": f"crm.{name}", "format": format_, "latency_budget": "2s"}
    declared |= {} if until is None else {"until": until}
    definition = JobDefinition.declare(declared, TABLE)
    return JobState(definition, fed.epoch_at(begin_s), **{"opened": True, **over})  # type: ignore[arg-type]


def _read(share: float) -> dict[int, Progress]:
    """Progress of a job: parts one after another."""
    each, rows = ROWS // VNODES, round(ROWS * min(share, 1.0))
    whole, rest = divmod(rows, each)
    done: dict[int, Progress] = {part: Completed((9,), each) for part in range(whole)}
    return {**done, whole: InProgress((5,), rest)} if rest else done


def _some(live: int, going_to: float | None = None, *, paused: bool = False) -> Callable[[FedPage], Shown]:
    """A number of complete jobs, and perhaps one that reads in the last ten minutes of the hour, up to a share."""

    def shown(fed: FedPage) -> Shown:
        names = ("orders-copy", "big-orders", "orders-search", "orders-audit", "eu-orders")[:live]
        jobs = [
            _job(fed, name, format_, -HOUR_S) for name, format_ in zip(names, _FORMATS[:live], strict=True)
        ]
        progress = {name: _read(1.0) for name in names}
        rows: dict[str, int] = {}
        if going_to is not None and fed.now_s >= -600:
            share = going_to * (1 + fed.now_s / 600)
            jobs.append(_job(fed, "third", "upsert", -600, rate_limit=500, paused=paused and fed.now_s >= 0))
            progress["third"], rows["third"] = _read(share), round(going_to * ROWS / 600 * EVERY_S)
        return tuple(jobs), progress, rows

    return shown


def _hour(shown: Callable[[FedPage], Shown], until_s: float = 0.0) -> FedPage:
    """A service that started 50 minutes ago, after a stop, and had one slow minute."""
    fed = FedPage(now_s=-3_000.0, shown=shown)
    _ended(fed, EndKind.STOPPED, at_s=-3_100.0)
    while fed.now_s <= until_s:
        fed.delay_s = 5.5 if -1_500 <= fed.now_s < -1_440 else 0.3 + 0.1 * (fed.now_s % 3)
        fed.batch()
        fed.now_s += EVERY_S
    fed.now_s -= EVERY_S - 0.1
    return fed


def _ended(fed: FedPage, kind: EndKind, *, at_s: float, fault: FaultReport | None = None) -> None:
    at_ms, times = round((fed.begin_s + at_s) * 1_000), 5 if fault else 1
    end = LastEnd(kind, "process 6 on vm", at_ms, at_ms - (100_000 if fault else 0), 1, fault, times=times)
    fed.cache.vitals.last_end = end
    fed.cache.vitals.events.note_end(end)


FAULT = FaultReport(
    Code.UNKNOWN_OP,
    "orders-2@207978",
    "9 bytes that are no Change (op -52)",
    "an operation 0 to 3",
    "correct the producer; to leave this record out, start with --skip-record 2@207978",
)


def empty() -> FedPage:
    return _hour(lambda _: ((), {}, {}))


def building() -> FedPage:
    """A start that copies the table that the state starts from."""
    fed = FedPage(now_s=-40.0, disk=None)
    fed.cache.vitals.begins("copying the table")
    fed.cache.vitals.copy = CopyProgress(132_000, 0, 300_000)
    fed.now_s = 0.0
    return fed


def under_way() -> FedPage:
    return _hour(_some(3, 0.44))


def five_serving() -> FedPage:
    return _hour(_some(5))


def ended() -> FedPage:
    def shown(fed: FedPage) -> Shown:
        jobs, progress, rows = _some(2)(fed)
        export = _job(fed, "export", "upsert", -HOUR_S, until="complete", ended=True)
        return (*jobs, export), {**progress, "export": _read(1.0)}, rows

    return _hour(shown)


def paused() -> FedPage:
    fed = _hour(_some(2, 0.44, paused=True), until_s=-EVERY_S)
    fed.reports = (MutationReport(0, "pause third"),)
    fed.now_s = 0.0
    fed.batch()
    fed.now_s = 12.0
    return fed


def suspended() -> FedPage:
    fed = _hour(_some(2, 0.44))
    fed.suspend()
    fed.now_s = 300.0
    fed.looked()
    return fed


def broker_away() -> FedPage:
    fed = _hour(_some(2, 0.44))
    fed.cache.interrupted()
    fed.cache.vitals.interrupted(AWAY)
    fed.cache.vitals.broker_away(AWAY)
    fed.now_s = 18.0
    return fed


def disk_low() -> FedPage:
    fed = _hour(_some(3))
    fed.disk = DISK.model_copy(update={"free_bytes": 700 << 20, "is_low": True})
    failing = replace(QUIET[0], failures=3, error="SPARK_FAILED", again_in_s=40.0, next_step="see the disk")
    fed.maintenance = (failing, *QUIET[1:])
    return fed


def restarted() -> FedPage:
    """An error ends it again and again; now it starts once more, and knows its jobs."""
    fed = FedPage(now_s=-3.0, shown=_some(3))
    _ended(fed, EndKind.FAILED, at_s=-15.0, fault=FAULT)
    fed.restore()
    fed.cache.vitals.begins("looking for an unfinished batch")
    fed.now_s = 0.0
    return fed


def stopping() -> FedPage:
    """Its page is away a moment later."""
    fed = _hour(_some(3))
    fed.cache.vitals.stops()
    fed.cache.vitals.log_changes()
    return fed


STATES: dict[str, Callable[[], FedPage]] = {
    "empty": empty,
    "building": building,
    "under way": under_way,
    "five serving": five_serving,
    "ended": ended,
    "paused": paused,
    "suspended": suspended,
    "broker away": broker_away,
    "disk low": disk_low,
    "restarted": restarted,
    "stopped": stopping,
}
