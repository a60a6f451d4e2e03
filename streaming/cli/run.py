"""`backfill run` and `rebuild`: the service, and the service after its state was lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from streaming.cli.configuration import ConfigArgument, ConfigOption, places, required_config
from streaming.runtime import logs
from streaming.runtime.logs import LogLevel
from streaming.runtime.signals import EndBySignal

if TYPE_CHECKING:
    from streaming.cli.screen import ServiceScreen
    from streaming.protocol.report import BatchReport

_REDRAW_S = 0.5

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a service that is started."""

    exit_when_complete: Annotated[
        bool, typer.Option(help="Exit with 0 once every known job is complete.")
    ] = False
    skip_record: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave an upstream record out if it is invalid: PARTITION@OFFSET, as an error named it. "
            "May be repeated."
        ),
    ] = None
    accept_log_reset: Annotated[
        bool,
        typer.Option(
            "--accept-log-reset",
            help="Let a database's log begin anew at lower positions (LOG_WENT_BACK), once in each partition.",
        ),
    ] = False
    paused: Annotated[
        bool, typer.Option("--paused", help="Read nothing for jobs, until `backfill resume`.")
    ] = False
    log_json: Annotated[
        bool | None,
        typer.Option(
            "--log-json/--log-text",
            help="Log lines, in JSON or for reading; by default a screen on a terminal, else JSON.",
        ),
    ] = None
    log_level: Annotated[
        LogLevel, typer.Option(help="Least level of the log; `debug` has a line for each batch.")
    ] = LogLevel.INFO


def command(
    file: ConfigArgument = None,
    config: ConfigOption = None,
    *,
    options: RunOptions,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take the state back from the instance that took it over.")
    ] = False,
) -> None:
    """Keep the replica and run the jobs, until SIGTERM or Ctrl-C.

    It goes on where it was, after a stop as after a crash. Another instance that has the state is taken over from; that
    one, started again by its supervisor, waits until this one is gone.
    """
    _serve(required_config(config, file), options, take_over=take_over)


def rebuild(file: ConfigArgument = None, config: ConfigOption = None, *, options: RunOptions) -> None:
    """Make a lost state anew, and go on as `run` does.

    The upstream is read from its first record, positions are taken from the outputs, and nothing is sent twice. `state`
    is an empty folder then. After a crash give the command again; once it has said state_was_brought_forward, `run`
    will do.
    """
    _serve(required_config(config, file), options, rebuilds=True)


def _serve(file: Path, options: RunOptions, *, take_over: bool = False, rebuilds: bool = False) -> None:
    """Run the service of a configuration until it ends. `rebuilds`: its state is lost, and made anew first."""
    with EndBySignal() as signals, _output(options) as screen:
        # Imports take a second or two, and the signal may come in it.
        from schemas.settings.http import read_token
        from streaming.broker.embedded import broker_of
        from streaming.cli.log_lines import LINE_EVERY_S, BatchLog, BuildLog
        from streaming.service.bootstrap import ServiceOptions, hosted_service
        from streaming.service.checks.listed import Part, require
        from streaming.service.checks.surroundings import Surroundings
        from streaming.service.left_out_columns import load

        settings, skipped = load(file), places(options.skip_record)
        if settings.kafka.bootstrap is None:  # the embedded broker is Java, too
            require(Surroundings(settings, None), Part.START)
        token = read_token(settings.http)

        def on_serving() -> None:
            signals.hand_over(service.stop)
            address = service.kafka.bootstrap
            log.info("serving", upstream=settings.upstream, bootstrap=address, lanes=service.config.lanes)

        def on_batch(report: BatchReport) -> None:
            building.close()
            batches.note(report)
            building.read(service.vitals.reading())

        every_s = LINE_EVERY_S if screen is None else _REDRAW_S
        with (
            closing(BuildLog(begins_late=settings.initial is not None, every_s=every_s)) as building,
            closing(BatchLog()) as batches,
            broker_of(settings) as kafka,
            hosted_service(
                settings,
                kafka,
                ServiceOptions(
                    on_batch=on_batch,
                    on_part=building,
                    on_copied=building.copied,
                    on_serving=on_serving,
                    exit_when_complete=options.exit_when_complete,
                    rebuild=rebuilds,
                    skip_records=skipped,
                    take_over=take_over,
                    refuses_living=screen is not None,
                    accept_log_reset=options.accept_log_reset,
                    paused=options.paused,
                ),
            ) as service,
        ):
            from streaming.observe.traces import traced
            from streaming.observe.wiring import observed
            from streaming.service.lag_group import lag_shown

            on_status = (lambda look: None) if screen is None else screen.follow
            with observed(service, token, on_status=on_status), traced(service), lag_shown(service):
                service.run()


@contextmanager
def _output(options: RunOptions) -> Iterator[ServiceScreen | None]:
    """Log lines, or None of them and a screen where standard error is a terminal and nothing else is asked for."""
    if options.log_json is not None or not sys.stderr.isatty():
        logs.configure(as_json=options.log_json, level=options.log_level)
        yield None
        return
    from rich.console import Console

    from streaming.cli.screen import ServiceScreen

    with ServiceScreen(Console(stderr=True, highlight=False)).drawn() as screen:
        logs.configure(level=options.log_level, screen=screen.event)
        yield screen
