"""`backfill run`: the service."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from streaming.cli.configuration import ConfigArgument, ConfigOption, required_config
from streaming.cli.skipped import places
from streaming.runtime import logs
from streaming.runtime.signals import EndBySignal

if TYPE_CHECKING:
    from streaming.protocol.report import BatchReport

ExitOption = Annotated[bool, typer.Option(help="Exit with 0 once every known job is complete.")]
SkipOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Leave an upstream record out if it is at fault: PARTITION@OFFSET, as an error named it. "
        "May be repeated."
    ),
]
ResetOption = Annotated[
    bool,
    typer.Option(
        "--accept-log-reset",
        help="Let a database's log begin anew at lower positions (LOG_WENT_BACK), once in each partition.",
    ),
]
LogOption = Annotated[
    bool | None,
    typer.Option("--log-json/--log-text", help="Form of the log lines; default: JSON unless on a terminal."),
]

log = structlog.get_logger()


def command(
    file: ConfigArgument = None,
    config: ConfigOption = None,
    exit_when_complete: ExitOption = False,
    skip_record: SkipOption = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take the state back from the instance that took it over.")
    ] = False,
    accept_log_reset: ResetOption = False,
    log_json: LogOption = None,
) -> None:
    """Keep the replica and run the jobs, until SIGTERM or Ctrl-C.

    It goes on where it was, after a stop as after a crash. Another instance that has the state is taken over from; that
    one, started again by its supervisor, waits until this one is gone.
    """
    serve(
        required_config(config, file),
        exit_when_complete=exit_when_complete,
        skip_record=skip_record,
        take_over=take_over,
        accept_log_reset=accept_log_reset,
        log_json=log_json,
    )


def serve(
    file: Path,
    *,
    exit_when_complete: bool,
    skip_record: list[str] | None,
    take_over: bool,
    accept_log_reset: bool,
    log_json: bool | None,
    rebuild: bool = False,
) -> None:
    """Run the service of a configuration until it ends. `rebuild`: its state is lost, and made anew first."""
    with EndBySignal() as signals:
        # Imports take a second or two, and the signal may come in it.
        from schemas.settings.config import load
        from schemas.settings.http import read_token
        from streaming.broker.embedded import broker_of
        from streaming.cli.building import BuildBar
        from streaming.service.bootstrap import hosted_service

        logs.configure(as_json=log_json)
        settings, skipped = load(file), places(skip_record)
        token = read_token(settings.http)

        def on_serving() -> None:
            signals.hand_over(service.stop)
            address = service.kafka.bootstrap
            log.info("serving", upstream=settings.upstream, bootstrap=address, lanes=service.config.lanes)

        def on_batch(report: BatchReport) -> None:
            bar.close()
            _log_batch(report)
            bar.read(service.vitals.reading())

        with (
            closing(BuildBar(begins_late=settings.initial is not None)) as bar,
            broker_of(settings) as kafka,
            hosted_service(
                settings,
                kafka,
                on_batch=on_batch,
                on_part=bar,
                on_copied=bar.copied,
                on_serving=on_serving,
                exit_when_complete=exit_when_complete,
                rebuild=rebuild,
                skip_records=skipped,
                take_over=take_over,
                accept_log_reset=accept_log_reset,
            ) as service,
        ):
            from streaming.observe.traces import traced
            from streaming.observe.wiring import observed

            with observed(service, token), traced(service):
                service.run()


def _log_batch(report: BatchReport) -> None:
    from state.values.progress import parts_done

    steps = {f"{step}_ms": round(took) for step, took in report.step_ms.items()}
    log.info(
        "batch",
        epoch=report.plan.epoch,
        barriers=len(report.plan.barriers),
        changes=report.changes,
        upstream_records=sum(report.plan.end.ends),
        parked=len(report.plan.parked),
        snapshot_rows=sum(report.snapshot_rows.values()),
        vnodes=report.vnode_count,
        log_rows=report.files.log_rows,
        log_files=len(report.files.log),
        **steps,
        lane_steps={step: round(took) for step, took in report.lane_ms.items()},
        **{f"vnodes_done.{name}": parts_done(states) for name, states in report.progress.items()},
    )
