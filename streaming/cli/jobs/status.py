"""`backfill status`: a service's condition in words, with an exit status for scripts, and the progress of its jobs.

The condition is as the service says, else as its state tells.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import IntEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from schemas.errors import Code, ConfigError
from schemas.settings.config import ServiceConfig
from schemas.table import nearest
from state.initial.start import CopyProgress
from state.small_files import is_recent, last_seen_ms
from state.values.last_end import LastEnd
from state.values.progress import Completed
from streaming.cli.configuration import ConfigOption, JobOrConfigArgument, JsonOption, job_or_config
from streaming.cli.jobs.listing import as_dict
from streaming.cli.jobs.served import Served
from streaming.cli.jobs.watching import StateForecasts, described, seconds_text, watch
from streaming.control.service_api import Answer, read_condition
from streaming.control.state_view import JobView, StateReader, StateView
from streaming.control.suspended import meaning_of, ways_on
from streaming.core.forecast import Forecast
from streaming.core.health import HealthCondition, late_after_s
from streaming.core.jobs import MOVED

_LOOKS_S, _LOOK_EVERY_S = 3.0, 0.25
_BLOCKS = "·▁▂▃▄▅▆▇█"
_MOST_BLOCKS = 64
_MOST_FIELDS = 20
_OF_ANSWER = ("condition", "ready", "reason", "troubles", "undeclared")


def command(
    word: JobOrConfigArgument = None,
    config: ConfigOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show bars until every backfill is complete.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show where the service is, and how far each job: share, rows, rate, time left, vnodes.

    Exit status: 0 serving; 10 building, catching up or without barriers; 11 suspended; 12 stopped; 13 not reachable.
    """
    job, file = job_or_config(word)
    served = Served.of(config, file)

    def chosen(view: StateView) -> Sequence[JobView]:
        found = [each for each in view.jobs if job in (None, each.name)]
        if job is not None and not found:
            raise ConfigError(
                Code.JOB_UNKNOWN, found=f"no job {job!r}{nearest(job, [each.name for each in view.jobs])}"
            )
        return found

    if follow:
        watch(Console(), served.state_reader.read, chosen)
        return
    answer = read_condition(served.config.http)
    view, forecasts = _forecasts(served.state_reader, answer)
    jobs = chosen(view)
    condition = shown_condition(
        answer,
        view,
        table=served.config.table.name,
        late_s=late_after_s(served.config.barrier_interval_ms),
        seen_ms=last_seen_ms(served.storage, view.owner),
    )
    if as_json:
        typer.echo(json.dumps(_as_dict(served.config, view, jobs, forecasts, answer, condition)))
    else:
        keeps, limits = served.config.table.has_key, limits_text(served.config)
        shown = (condition, view, jobs, forecasts)
        _show(
            Console(),
            *shown,
            has_replica=keeps,
            limits=limits,
            incomplete=served.config.table.incomplete,
            answer=answer,
        )
    if condition.exit_status:
        raise typer.Exit(condition.exit_status)


def _forecasts(state_reader: StateReader, answer: Answer | None) -> tuple[StateView, dict[str, Forecast]]:
    """Rates are the service's if it says them; else they need some seconds of batches, while a job reads."""
    known = StateForecasts()
    view = state_reader.read()
    forecasts = known.after(view)
    if answer is not None and answer.forecasts is not None:
        return view, {name: answer.forecasts.get(name, each) for name, each in forecasts.items()}
    deadline = time.monotonic() + _LOOKS_S
    while any(job.phase == "backfilling" for job in view.jobs) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
        view = state_reader.read()
        forecasts = known.after(view)
    return view, forecasts


def _show(
    console: Console,
    condition: ShownCondition,
    view: StateView,
    jobs: Sequence[JobView],
    forecasts: dict[str, Forecast],
    *,
    has_replica: bool,
    limits: str | None = None,
    incomplete: Sequence[str] = (),
    answer: Answer | None = None,
) -> None:
    facts = Table.grid(padding=(0, 3))
    facts.add_row("condition", condition.words)
    if condition.reason is not None:
        facts.add_row("", condition.reason)
    for number, command in enumerate(condition.commands):
        facts.add_row("" if number else "go on", f"{meaning_of(command)}:")
        facts.add_row("", command)
    for trouble in () if answer is None else answer.troubles:
        facts.add_row("trouble", trouble)
    if answer is not None and answer.undeclared:
        more = len(answer.undeclared) - _MOST_FIELDS
        names = ", ".join(answer.undeclared[:_MOST_FIELDS])
        facts.add_row("not declared", names if more <= 0 else f"{names} and {more:,} more fields")
    has_ended = condition.exit_status in (StatusExit.STOPPED, StatusExit.NOT_REACHABLE)
    facts.add_row("last owner" if has_ended else "owner", view.owner)
    facts.add_row("lanes", f"{view.lanes}{', set by `backfill lanes`' if view.lanes_set else ''}")
    facts.add_row(
        "replica", f"about {view.rows_stored:,} rows" if has_replica else "none, for rows without a key"
    )
    if view.copy is not None:
        facts.add_row("copying", _copy_text(view.copy))
    if incomplete:
        facts.add_row(
            "incomplete", f"{', '.join(incomplete)}: values from before they were columns are missing"
        )
    if view.read is not None:
        facts.add_row("reading", reading_text(view, answer))
    if limits is not None:
        facts.add_row("limits", limits)
    if view.plan is not None and (moved_at := view.plan.moved_after):
        facts.add_row("partitions", f"added, reported by barrier {moved_at}: {MOVED}")
    for job in jobs:
        if job.state.paused_by is not None:
            facts.add_row("paused", f"{job.name}: {job.state.paused_by}")
        if job.state.columns_refused is not None:
            facts.add_row("no new columns", f"{job.name}: {job.state.columns_refused}")
    age_s = barrier_age_s(view)
    facts.add_row("barrier", "none yet" if age_s is None else f"{view.epoch}, {seconds_text(age_s)} ago")
    console.print(facts, highlight=False)
    for job in jobs:
        console.print(f"\n[bold]{job.name}[/bold] → {job.state.definition.output}")
        console.print(f"  {described(job, forecasts[job.name]).strip()}", highlight=False)
        console.print(f"  {vnode_line(job, console.width - 2)}", highlight=False)


def limits_text(config: ServiceConfig) -> str | None:
    """The limits that hold for the upstream and for all jobs; None without any."""
    upstream, jobs = config.source.read_limit, config.limits.rate_limit
    parts = [] if upstream is None else [f"{upstream:,} records/s of the upstream"]
    parts += [] if jobs is None else [f"{jobs:,} rows/s of all jobs together"]
    return ", ".join(parts) or None


def _copy_text(copy: CopyProgress) -> str:
    """The progress of the table that the replica starts from."""
    if copy.sorted:
        return f"{copy.copied:,} rows copied, {copy.sorted:,} of them sorted"
    return f"{copy.copied:,} of {'unknown' if copy.of is None else f'{copy.of:,}'} rows"


def reading_text(view: StateView, answer: Answer | None = None) -> str:
    """The progress of the table's reading, from the service if it answered, else from its state."""
    said = None if answer is None else answer.reading
    if said is None:
        assert view.read is not None
        waiting = sum(chunk.rows for chunk in view.read.chunks)
        return f"{view.rows_stored:,} rows released, {waiting:,} wait for their changes"
    parts = [
        f"{said['rows']:,} of about {said['of']:,} rows, {said['waiting_rows']:,} wait for their changes"
    ]
    if said["paused"]:
        parts.append("paused")
    elif said["seconds_left"] is not None:
        parts.append(f"{seconds_text(said['seconds_left'])} left")
    if said["rate_limit"] is not None:
        parts.append(f"limit {said['rate_limit']:,}/s")
    if said["trouble"] is not None:
        parts.append(f"waits: {said['trouble']}")
    return ", ".join(parts)


def vnode_line(job: JobView, width: int = 80) -> str:
    """The job's parts from left to right, within so many columns: a dot is not started, a full block completed."""
    definition = job.state.definition
    vnode_count = definition.part_count
    count = f" {job.vnodes_done} of {vnode_count} {definition.part_name}s"
    columns = max(1, min(_MOST_BLOCKS, vnode_count, width - len(count)))
    weights, vnodes = [0.0] * columns, [0] * columns
    for vnode in range(vnode_count):
        state, column = job.progress.get(vnode), vnode * columns // vnode_count
        vnodes[column] += 1
        weights[column] += 0 if state is None else 1 if isinstance(state, Completed) else 0.5
    blocks = (_BLOCKS[int(weight / of * 8)] for weight, of in zip(weights, vnodes, strict=True))
    return "".join(blocks) + count


def _as_dict(
    config: ServiceConfig,
    view: StateView,
    jobs: Sequence[JobView],
    forecasts: dict[str, Forecast],
    answer: Answer | None,
    condition: ShownCondition,
) -> dict[str, object]:
    return {
        "exit_status": int(condition.exit_status),
        "last_end": None if view.end is None else asdict(view.end),
        **{name: getattr(answer, name, None) for name in _OF_ANSWER},
        "incomplete": config.table.incomplete,
        "owner": view.owner,
        "lanes": view.lanes,
        "lanes_set": view.lanes_set,
        "barrier": view.epoch,
        "rows_stored": view.rows_stored,
        "copy": None if view.copy is None else asdict(view.copy),
        "reading": None if answer is None else answer.reading,
        "read_limit": config.source.read_limit,
        "rate_limit": config.limits.rate_limit,
        "jobs": [
            as_dict(job)
            | {
                "rows_per_s": forecasts[job.name].rows_per_s,
                "seconds_left": forecasts[job.name].seconds_left,
            }
            for job in jobs
        ],
    }


class StatusExit(IntEnum):
    """Exit statuses of `backfill status`; all others are errors of the command itself."""

    SERVING = 0
    BEHIND = 10
    """Building, catching up, or without barriers for the moment."""
    SUSPENDED = 11
    STOPPED = 12
    NOT_REACHABLE = 13


@dataclass(frozen=True, slots=True)
class ShownCondition:
    """`words` in one line, the `reason` in another, None without one, and the commands that lead on."""

    words: str
    exit_status: StatusExit
    reason: str | None = None
    commands: tuple[str, ...] = ()


def shown_condition(
    answer: Answer | None, view: StateView, *, table: str, late_s: float, seen_ms: int | None
) -> ShownCondition:
    """The condition of a service. `seen_ms` is the Unix time of its process's last sign of life, None without one."""
    lives = is_recent(seen_ms)
    end = view.end
    if end is not None and view.is_suspended:
        return _suspended(end, table, lives=lives or answer is not None)
    if answer is not None:
        return _answered(answer)
    if end is not None and not lives:
        return ShownCondition(ended_text(end), StatusExit.STOPPED, str(end.fault) if end.fault else None)
    age_s = barrier_age_s(view)
    if not lives:
        seen = f"since {moment(seen_ms)}" if seen_ms is not None else "of its process"
        return ShownCondition(f"no sign of life {seen}", StatusExit.NOT_REACHABLE)
    if end is not None or age_s is None:
        last = "" if end is None else f"; before that it {ended_text(end)}"
        return ShownCondition(f"no batch so far{last}", StatusExit.BEHIND)
    if age_s <= late_s:
        return ShownCondition("barriers come out", StatusExit.SERVING)
    late = f"no barrier for {seconds_text(age_s)}: see its log"
    return ShownCondition(late, StatusExit.BEHIND)


def _answered(answer: Answer) -> ShownCondition:
    if answer.ready:
        serves = answer.condition == HealthCondition.SERVING
        return ShownCondition(
            answer.condition, StatusExit.SERVING if serves else StatusExit.BEHIND, answer.reason
        )
    if answer.step is not None:
        return ShownCondition(f"{answer.condition}: {answer.step}", StatusExit.BEHIND, answer.reason)
    since = "" if answer.batch_age_s is None else f", no batch for {seconds_text(answer.batch_age_s)}"
    stops = answer.condition == HealthCondition.STOPPING
    exit_status = StatusExit.STOPPED if stops else StatusExit.BEHIND
    return ShownCondition(f"{answer.condition}: not ready{since}", exit_status, answer.reason)


def _suspended(end: LastEnd, table: str, *, lives: bool) -> ShownCondition:
    again = f", {end.times} times in a row" if end.times > 1 else ""
    further = f"; since then also {', '.join(end.joined)}" if end.joined else ""
    gone = "" if lives else "; its process is gone: start it, it tries once"
    words = f"suspended since {moment(end.since_ms)}{again}{further}{gone}"
    commands = () if end.fault is None else ways_on(end.fault, table)
    return ShownCondition(words, StatusExit.SUSPENDED, str(end.fault) if end.fault else None, commands)


def ended_text(end: LastEnd) -> str:
    """The end of a service in words, with its time."""
    again = f", {end.times} times in a row since {moment(end.since_ms)}" if end.times > 1 else ""
    return f"{end.words} at {moment(end.at_ms)}{again}"


def moment(unix_ms: int) -> str:
    """A time of day, with its date if that is another one."""
    at = datetime.fromtimestamp(unix_ms / 1_000).astimezone()
    return f"{at:%H:%M:%S}" if at.date() == datetime.now().astimezone().date() else f"{at:%Y-%m-%d %H:%M:%S}"


def barrier_age_s(view: StateView) -> float | None:
    """The age of the last barrier that is done; None before the first."""
    if view.plan is None or not view.epoch:
        return None
    done = view.plan.end if view.plan.epoch == view.epoch else view.plan.start
    return None if done is None else max(0.0, time.time() - done.barrier.injected_at_ms / 1_000)
