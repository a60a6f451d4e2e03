"""`backfill status`: how a service and its jobs are doing."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from schemas.epoch import unix_ms_from_epoch
from schemas.errors import Code, ConfigError
from schemas.table import nearest
from state.progress import Completed
from streaming.cli.list import as_dict
from streaming.cli.served import DEFAULT_CONFIG, ConfigOption, Served
from streaming.cli.watching import LOOK_EVERY_S, described, forecasts_after, seconds_text, watch
from streaming.core.forecast import Forecast, Paces
from streaming.steering.sight import Onlooker, SeenJob, Sight

_TWO_LOOKS_S = 3.0
_BLOCKS = "·▁▂▃▄▅▆▇█"


def command(
    job: Annotated[str | None, typer.Argument(help="Name of a job; all if left out.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show bars until every backfill is complete.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, in one object.")] = False,
) -> None:
    """Show where the service is, and how far each job: share, rows, rate, time left, vnodes."""
    served = Served.of(config)

    def chosen(sight: Sight) -> Sequence[SeenJob]:
        found = [each for each in sight.jobs if job in (None, each.name)]
        if job is not None and not found:
            raise ConfigError(
                Code.JOB_UNKNOWN,
                found=f"no job {job!r}{nearest(job, [each.name for each in sight.jobs])}",
                expected="a job of this service",
                next_step="see `backfill list`",
            )
        return found

    if follow:
        watch(Console(), served.onlooker, chosen)
        return
    sight, forecasts = _two_looks(served.onlooker)
    jobs = chosen(sight)
    if as_json:
        typer.echo(json.dumps(_as_dict(sight, jobs, forecasts)))
    else:
        _show(Console(), sight, jobs, forecasts, served.config.table.vnode_count)


def _two_looks(onlooker: Onlooker) -> tuple[Sight, dict[str, Forecast]]:
    """A rate needs two batches; a service that stands still is not waited for long."""
    paces = Paces()
    first = onlooker.look()
    forecasts = forecasts_after(paces, first)
    sight, deadline = first, time.monotonic() + _TWO_LOOKS_S
    while sight.epoch == first.epoch and any(job.extent.rows_left for job in first.jobs):
        if time.monotonic() >= deadline:
            break
        time.sleep(LOOK_EVERY_S)
        sight = onlooker.look()
        forecasts = forecasts_after(paces, sight)
    return sight, forecasts


def _show(
    console: Console, sight: Sight, jobs: Sequence[SeenJob], forecasts: dict[str, Forecast], vnode_count: int
) -> None:
    facts = Table.grid(padding=(0, 3))
    facts.add_row("owner", sight.owner)
    facts.add_row("lanes", str(sight.lanes))
    facts.add_row("replica", f"{sight.rows_stored:,} rows")
    facts.add_row("barrier", f"{sight.epoch}, {_age(sight.epoch)}" if sight.epoch else "none yet")
    console.print(facts)
    for job in jobs:
        console.print(f"\n[bold]{job.name}[/bold] → {job.state.definition.output}")
        console.print(f"  {described(job, forecasts[job.name]).strip()}", highlight=False)
        console.print(f"  {vnode_line(job, vnode_count)}", highlight=False)


def _age(epoch: int) -> str:
    return f"{seconds_text(max(0.0, time.time() - unix_ms_from_epoch(epoch) / 1_000))} ago"


def vnode_line(job: SeenJob, vnode_count: int, width: int = 64) -> str:
    """The vnodes from left to right: a dot is not started, a full block completed."""
    columns = min(width, vnode_count)
    weights = [0.0] * columns
    for vnode in range(vnode_count):
        state = job.progress.get(vnode)
        weights[vnode * columns // vnode_count] += (
            0 if state is None else 1 if isinstance(state, Completed) else 0.5
        )
    per_column = vnode_count / columns
    blocks = "".join(_BLOCKS[min(8, int(weight / per_column * 8))] for weight in weights)
    return f"{blocks} {job.vnodes_done} of {vnode_count} vnodes"


def _as_dict(sight: Sight, jobs: Sequence[SeenJob], forecasts: dict[str, Forecast]) -> dict[str, object]:
    return {
        "owner": sight.owner,
        "lanes": sight.lanes,
        "barrier": sight.epoch,
        "rows_stored": sight.rows_stored,
        "jobs": [
            as_dict(job)
            | {
                "rows_per_s": forecasts[job.name].rows_per_s,
                "seconds_left": forecasts[job.name].seconds_left,
            }
            for job in jobs
        ],
    }
