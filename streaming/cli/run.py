"""`backfill run`: the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import structlog
import typer

from schemas.config import load
from state.progress import Completed
from streaming.cli.skipped import places
from streaming.runtime import logs
from streaming.service.batches import BatchReport
from streaming.service.host import hosted_service, stopped_by_signal

log = structlog.get_logger()


def command(
    config: Annotated[Path, typer.Argument(help="Configuration file, YAML or JSON.", dir_okay=False)],
    exit_when_complete: Annotated[
        bool, typer.Option(help="Exit with 0 once every known job is complete.")
    ] = False,
    skip_record: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave an upstream record out if it is at fault: PARTITION@OFFSET, as an error named it. "
            "May be repeated."
        ),
    ] = None,
    log_json: Annotated[
        bool | None,
        typer.Option(
            "--log-json/--log-text", help="Form of the log lines; default: JSON unless on a terminal."
        ),
    ] = None,
) -> None:
    """Keep the replica and run the jobs, until SIGTERM or Ctrl-C.

    It goes on where it was, after a stop as after a crash.
    """
    logs.configure(as_json=log_json)
    settings = load(config)
    skipped = places(skip_record)
    with (
        hosted_service(
            settings, on_batch=_log_batch, exit_when_complete=exit_when_complete, skip_records=skipped
        ) as service,
        stopped_by_signal(service.stop),
    ):
        log.info(
            "serving", upstream=settings.upstream, bootstrap=service.kafka.bootstrap, lanes=settings.lanes
        )
        service.run()
        log.info("stopped")


def _log_batch(report: BatchReport) -> None:
    steps = {f"{step}_ms": round(took) for step, took in report.step_ms.items()}
    log.info(
        "batch",
        epoch=report.plan.epoch,
        barriers=len(report.plan.barriers),
        changes=report.changes,
        snapshot_rows=sum(report.snapshot_rows.values()),
        vnodes=report.vnode_count,
        **steps,
        lane_steps={step: round(took) for step, took in report.lane_ms.items()},
        **{f"vnodes_done.{name}": _done(states) for name, states in report.progress.items()},
    )


def _done(progress: object) -> int:
    assert isinstance(progress, dict)
    return sum(isinstance(state, Completed) for state in progress.values())
