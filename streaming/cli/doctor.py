"""`backfill doctor`: everything that a service relies on, a line each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from schemas.errors import ConfigError
from streaming.cli.configuration import ConfigArgument, ConfigOption, JsonOption, required_config
from streaming.kafka.clients import KafkaSettings
from streaming.runtime import logs
from streaming.service.checks.listed import look
from streaming.service.checks.surroundings import Finding, Grade, Surroundings, worst
from streaming.service.left_out_columns import load

_WAIT_S = 5.0
_STYLES = {
    Grade.OK: "green",
    Grade.WARNING: "yellow",
    Grade.UNKNOWN: "yellow",
    Grade.FAILED: "red",
}


def command(
    file: ConfigArgument = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at everything that a service with this configuration needs, a line each with what to do.

    The list is the one that `run` goes through before it starts Java: Java, the page's address, state, broker, topics,
    the rights to them, the first 1,000 records of each partition; and, as advice, jars, disk, transactions, clock,
    schema registry, and the table of PostgreSQL that a state starts from. Nothing is created or changed. The exit
    status is the one with which `run` would end, 0 if it would start.
    """
    logs.configure()
    findings = []
    console = Console(highlight=False)
    for finding in _findings(required_config(config, file)):
        findings.append(finding)
        if not as_json:
            _show(console, finding)
    if as_json:
        typer.echo(json.dumps({"verdict": worst(findings), "findings": [each.shown for each in findings]}))
    errors = (finding.error for finding in findings if finding.error is not None)
    if (error := next(errors, None)) is not None:
        raise typer.Exit(error.exit_status)


def _findings(path: Path) -> Iterator[Finding]:
    try:
        config = load(path)
    except ConfigError as error:
        yield Finding.of("configuration", error)
        return
    yield Finding.ok("configuration", str(path))
    kafka = None
    if config.kafka.bootstrap is not None:
        kafka = replace(KafkaSettings.from_config(config.kafka), wait_s=_WAIT_S)
    yield from look(Surroundings(config, kafka))


def _show(console: Console, finding: Finding) -> None:
    verdict = f"[{_STYLES[finding.verdict]}]{finding.verdict:<7}[/]"
    console.print(f"{verdict} {escape(f'{finding.subject}: {finding.found}')}", soft_wrap=True)
    if finding.next_step is not None:
        console.print(f"        next: {escape(finding.next_step)}", soft_wrap=True)
