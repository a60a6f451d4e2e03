"""`backfill run`: the service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from streaming.cli.skipped import places
from streaming.runtime import logs
from streaming.runtime.places import CONFIG_VARIABLE
from streaming.runtime.signals import EndBySignal

if TYPE_CHECKING:
    from streaming.service.report import BatchReport

log = structlog.get_logger()


def command(
    config: Annotated[
        Path,
        typer.Argument(envvar=CONFIG_VARIABLE, help="Configuration file, YAML or JSON.", dir_okay=False),
    ],
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
    with EndBySignal() as signals:
        # Imports take a second or two, and the signal may come in it.
        from schemas.config import load
        from schemas.http import read_token
        from streaming.service.host import hosted_service

        logs.configure(as_json=log_json)
        settings, skipped = load(config), places(skip_record)
        token = read_token(settings.http)

        def on_serving() -> None:
            signals.hand_over(service.stop)
            address = service.kafka.bootstrap
            log.info("serving", upstream=settings.upstream, bootstrap=address, lanes=settings.lanes)

        with hosted_service(
            settings,
            on_batch=_log_batch,
            on_serving=on_serving,
            exit_when_complete=exit_when_complete,
            skip_records=skipped,
        ) as service:
            from streaming.observe.around import observed

            with observed(service, token):
                service.run()


def _log_batch(report: BatchReport) -> None:
    from state.progress import vnodes_done

    steps = {f"{step}_ms": round(took) for step, took in report.step_ms.items()}
    log.info(
        "batch",
        epoch=report.plan.epoch,
        barriers=len(report.plan.barriers),
        changes=report.changes,
        parked=len(report.plan.parked),
        snapshot_rows=sum(report.snapshot_rows.values()),
        vnodes=report.vnode_count,
        log_rows=report.files.log_rows,
        log_files=len(report.files.log),
        **steps,
        lane_steps={step: round(took) for step, took in report.lane_ms.items()},
        **{f"vnodes_done.{name}": vnodes_done(states) for name, states in report.progress.items()},
    )
