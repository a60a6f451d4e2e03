"""`backfill doctor`: everything that a service relies on, a line each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from schemas.errors import ConfigError, EnvironmentProblem
from schemas.settings.config import ServiceConfig, load
from streaming.cli.configuration import ConfigArgument, ConfigOption, JsonOption, required_config
from streaming.cli.doctor import machine
from streaming.cli.doctor.findings import Finding, Verdict, topic_needs, worst

_WAIT_S = 5.0
_STYLES = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.UNKNOWN: "yellow", Verdict.FAILED: "red"}


def command(
    file: ConfigArgument = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at everything that a service with this configuration needs, a line each with what to do.

    Java, jars, disk, state, broker, topics, the rights to them, transactions, clock, columns and logs in the first
    records, schema registry, and the table of PostgreSQL that a state starts from. Nothing is created or changed. The
    exit status is 7 if anything would keep the service from running.
    """
    findings = []
    console = Console(highlight=False)
    for finding in _looked_at(required_config(config, file)):
        findings.append(finding)
        if not as_json:
            _show(console, finding)
    verdict = worst(findings)
    if as_json:
        typer.echo(json.dumps({"verdict": verdict, "findings": [asdict(each) for each in findings]}))
    if verdict is Verdict.FAILED:
        raise typer.Exit(EnvironmentProblem.exit_status)


def _looked_at(path: Path) -> Iterator[Finding]:
    try:
        config = load(path)
    except ConfigError as error:
        yield Finding.of("configuration", error)
        return
    yield Finding.ok("configuration", str(path))
    yield machine.java()
    yield machine.jars()
    yield machine.state(config)
    yield from machine.disks(config)
    yield from _kafka(config)
    if (registry := machine.registry(config)) is not None:
        yield registry
    if config.initial_postgres is not None:
        from streaming.cli.doctor import postgres

        yield from postgres.looked_at(config, config.initial_postgres)


def _kafka(config: ServiceConfig) -> Iterator[Finding]:
    # Here, as the machine's lines are there before the client's library is.
    from streaming.cli.doctor import kafka
    from streaming.kafka.clients import KafkaSettings

    if config.kafka.bootstrap is None:
        yield kafka.UNASKED
        return
    settings = replace(KafkaSettings.from_config(config.kafka), wait_s=_WAIT_S)
    findings = list[Finding]()
    for finding in kafka.looked_at(settings, topic_needs(config)):
        findings.append(finding)
        yield finding
    if worst(findings) is not Verdict.FAILED:
        from streaming.cli.doctor import first_rows

        yield from first_rows.looked_at(config, settings)


def _show(console: Console, finding: Finding) -> None:
    verdict = f"[{_STYLES[finding.verdict]}]{finding.verdict:<7}[/]"
    console.print(f"{verdict} {escape(f'{finding.subject}: {finding.found}')}", soft_wrap=True)
    if finding.next_step is not None:
        console.print(f"        next: {escape(finding.next_step)}", soft_wrap=True)
