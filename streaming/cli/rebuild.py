"""`backfill rebuild`: the service, after its state was lost."""

from __future__ import annotations

from streaming.cli.configuration import ConfigArgument, ConfigOption, required_config
from streaming.cli.run import ExitOption, LogOption, ResetOption, SkipOption, serve


def command(
    file: ConfigArgument = None,
    config: ConfigOption = None,
    exit_when_complete: ExitOption = False,
    skip_record: SkipOption = None,
    accept_log_reset: ResetOption = False,
    log_json: LogOption = None,
) -> None:
    """Make a lost state anew, and go on as `run` does.

    The upstream is read from its first record, positions are taken from the outputs, and nothing is sent twice. `state`
    is an empty folder then. After a crash give the command again; once it has said state_was_brought_forward, `run`
    will do.
    """
    serve(
        required_config(config, file),
        exit_when_complete=exit_when_complete,
        skip_record=skip_record,
        take_over=False,
        accept_log_reset=accept_log_reset,
        log_json=log_json,
        rebuild=True,
    )
