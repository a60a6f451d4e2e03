"""`backfill verify`: check the law on real topics, and say where it is broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from schemas.config import load
from schemas.errors import Code, ConfigError, LawViolation
from schemas.filter.parse import parse_filter
from schemas.job import JobDefinition
from schemas.table import TableSchema, nearest
from streaming.cli.skipped import places
from streaming.cli.target import Broker, KafkaOption, read_table
from streaming.runtime.kafka import KafkaSettings
from streaming.verify.findings import Finding, Report
from streaming.verify.judge import Progress as OnProgress
from streaming.verify.judge import verify_topics

_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Case:
    """One output to judge."""

    settings: KafkaSettings
    upstream: str
    table: TableSchema
    job: JobDefinition


def command(
    config: Annotated[Path | None, typer.Argument(help="The service's configuration file.")] = None,
    job: Annotated[str | None, typer.Option(help="Only this job of the configuration.")] = None,
    bootstrap: Annotated[str | None, typer.Option(help="host:port of the broker.")] = None,
    kafka: KafkaOption = None,
    upstream: Annotated[str | None, typer.Option(help="Upstream topic, without a configuration.")] = None,
    output: Annotated[str | None, typer.Option(help="Output topic, without a configuration.")] = None,
    table: Annotated[Path | None, typer.Option(help="YAML or JSON file that declares the table.")] = None,
    columns: Annotated[str | None, typer.Option(help="The output's columns, as in id,amount.")] = None,
    condition: Annotated[str | None, typer.Option("--filter", help="The job's filter.")] = None,
    require_complete: Annotated[
        bool, typer.Option("--require-complete", help="Fail unless every vnode is finished.")
    ] = False,
    skip_record: Annotated[
        list[str] | None,
        typer.Option(
            help="An upstream record that `run` was told to leave out: PARTITION@OFFSET. May be repeated."
        ),
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="How many findings to print.")] = _MOST_SHOWN,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a job, nothing else.")] = False,
) -> None:
    """Check output topics against their upstream, record by record.

    Give a configuration, for all of its jobs or one (--job). Or describe one output: --bootstrap or --kafka,
    --upstream, --output and --table, with --columns and --filter if the job has them. Both topics may be live. The exit
    status is 8 if anything is found.
    """
    if config is not None:
        described = {"--upstream": upstream, "--output": output, "--table": table, "--columns": columns}
        _refuse("CONFIG", {**described, "--filter": condition})
        cases = _configured(config, job, Broker(bootstrap, kafka))
    else:
        cases = [_described(Broker(bootstrap, kafka), upstream, output, table, columns, condition)]
    left_out = places(skip_record)
    reports = []
    outputs = load(config).outputs if config is not None else []
    for case in cases:
        report = _judge(case, outputs, require_complete=require_complete, left_out=left_out)
        reports.append(report)
        if as_json:
            print(json.dumps(report.to_dict()))  # noqa: T201
        else:
            _print(report, show)
    _raise_if_broken(reports)


def _configured(path: Path, name: str | None, broker: Broker) -> list[_Case]:
    config = load(path)
    settings = broker.settings(config)
    jobs = [job for job in config.jobs if name in (None, job.name)]
    if not jobs:
        known = [job.name for job in config.jobs]
        raise ConfigError(
            Code.JOB_UNKNOWN if name else Code.NO_JOB,
            where=str(path),
            found=f"no job {name}{nearest(name, known)}" if name else "no job in the configuration",
            expected="a job of the configuration; for one created since, --upstream, --output and --table",
            next_step="backfill verify --help",
        )
    return [_Case(settings, config.upstream, config.table, job) for job in jobs]


def _described(
    broker: Broker,
    upstream: str | None,
    output: str | None,
    table: Path | None,
    columns: str | None,
    condition: str | None,
) -> _Case:
    if upstream is None or output is None or table is None:
        raise _usage("too little to go by", "CONFIG, or --bootstrap, --upstream, --output and --table")
    schema = read_table(table)
    declared: dict[str, Any] = {"name": "verify", "output": output, "filter": condition}
    if columns is not None:
        declared["columns"] = [name.strip() for name in columns.split(",")]
    job = JobDefinition.declare(declared, schema, where="options")
    return _Case(broker.settings(None), upstream, schema, job)


def _refuse(given: str, others: dict[str, object]) -> None:
    surplus = [option for option, value in others.items() if value is not None]
    if surplus:
        raise _usage(f"{given} and {', '.join(surplus)}", "one or the other")


def _usage(found: str, expected: str) -> ConfigError:
    return ConfigError(Code.USAGE, found=found, expected=expected, next_step="backfill verify --help")


def _judge(
    case: _Case, outputs: list[str], *, require_complete: bool, left_out: frozenset[tuple[int, int]]
) -> Report:
    job = case.job
    with _progress_bar(job.output) as on_progress:
        return verify_topics(
            case.settings,
            case.upstream,
            job.output,
            case.table,
            columns=job.columns,
            condition=None if job.filter is None else parse_filter(job.filter, case.table),
            progress=on_progress,
            require_complete=require_complete,
            left_out=left_out,
            siblings=outputs,
        )


@contextmanager
def _progress_bar(title: str) -> Iterator[OnProgress]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda read, total: bar.update(task, completed=read, total=total)


def _print(report: Report, show: int) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(_summary(report))
    for finding in report.findings[:show]:
        console.print(_line(finding))
    if report.found > show:
        console.print(f"… and {report.found - show} more")


def _summary(report: Report) -> Table:
    verdict = "[green]the law holds[/green]" if report.clean else f"[red]{report.found} findings[/red]"
    records = report.upstream_records + report.output_records
    rows = {
        "records": f"{report.upstream_records:,} upstream, {report.output_records:,} output",
        "barriers": f"{report.barriers:,} checked, {report.behind:,} not yet in the output",
        "vnodes": f"{report.vnodes_finished} of {report.vnode_count} finished, "
        f"{report.vnodes_in_progress} in progress",
        "snapshot": f"{report.snapshot_rows:,} rows read",
        "took": f"{report.seconds:.1f} s, {records / max(report.seconds, 1e-9):,.0f} records/s",
        "verdict": verdict,
    }
    table = Table(title=escape(f"{report.output} against {report.upstream}"), show_header=False)
    for name, text in rows.items():
        table.add_row(name, text)
    for rule, count in sorted(report.counts.items()):
        table.add_row(escape(rule), f"{count:,}")
    return table


def _line(finding: Finding) -> str:
    barrier = "" if finding.barrier is None else f" barrier {finding.barrier}"
    vnode = "" if finding.vnode is None else f" vnode {finding.vnode}"
    text = f"{finding.where}{barrier}{vnode}: wanted {finding.expected}; found {finding.found}"
    return f"[red]{finding.rule}[/red] {finding.side} {escape(text)}"


def _raise_if_broken(reports: list[Report]) -> None:
    broken = [report for report in reports if not report.clean]
    if broken:
        first = broken[0]
        outputs = ", ".join(report.output for report in broken)
        raise LawViolation(
            Code.LAW_BROKEN,
            where=str(first.findings[0].where) if first.findings else first.output,
            found=f"{sum(report.found for report in broken)} findings in {outputs}",
            expected="an output that equals its upstream up to its positions, at each barrier",
            next_step="look at the findings above; a finding of side upstream is the producer's",
        )
