"""`backfill verify`: check the law on real topics, and say where it is broken."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from schemas.errors import Code, ConfigError, InputError, LawViolation
from schemas.job import JobDefinition
from schemas.kinds.projection import columns_of_text
from schemas.records import RecordId
from schemas.settings.config import ServiceConfig
from streaming.cli.configuration import (
    ConfigOption,
    JobOrConfigArgument,
    job_or_config,
    one_job,
    optional_config,
    places,
    usage,
    with_option,
)
from streaming.cli.jobs.served import job_named, known_jobs
from streaming.cli.topics.target import (
    Broker,
    KafkaOption,
    Target,
    initial_table,
    refuse_read_once,
    upstream_target,
)
from streaming.control.known_table import as_known
from streaming.registry.outputs import OutputSchemas
from streaming.service.left_out_columns import load
from streaming.verify.findings import LawFinding, Report
from streaming.verify.judge import Progress as OnProgress
from streaming.verify.judge import verify_job

_MOST_SHOWN = 20


def command(
    word: JobOrConfigArgument = None,
    config: ConfigOption = None,
    job: Annotated[str | None, typer.Option(help="Only this job.")] = None,
    bootstrap: Annotated[str | None, typer.Option(help="host:port of the broker.")] = None,
    kafka: KafkaOption = None,
    upstream: Annotated[str | None, typer.Option(help="Upstream topic, if not the configuration's.")] = None,
    barrier_topic: Annotated[
        str | None, typer.Option(help="The upstream's barrier topic, if it has one and no configuration.")
    ] = None,
    output: Annotated[str | None, typer.Option(help="Output topic, in place of jobs.")] = None,
    table: Annotated[Path | None, typer.Option(help="YAML or JSON file that declares the table.")] = None,
    columns: Annotated[str | None, typer.Option(help="The output's columns, as in id,amount.")] = None,
    condition: Annotated[str | None, typer.Option("--filter", help="The job's filter.")] = None,
    read: Annotated[
        str | None, typer.Option(help="What the job reads: replica, if left out, or topic.")
    ] = None,
    require_complete: Annotated[
        bool, typer.Option("--require-complete", help="Fail unless every vnode is finished.")
    ] = False,
    skip_record: Annotated[
        list[str] | None,
        typer.Option(help="An upstream record that `run` leaves out: PARTITION@OFFSET. May be repeated."),
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="How many findings to print.")] = _MOST_SHOWN,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a job, nothing else.")] = False,
) -> None:
    """Check output topics against their upstream, record by record.

    The configuration's jobs or one of them, those that were created since included. Or describe one output:
    --output, with --columns and --filter if it has them; and, without a configuration, --bootstrap or --kafka,
    --upstream and --table. Topics may be live. The exit status is 8 if anything is found.
    """
    named, file = job_or_config(word)
    path, job = optional_config(config, file), one_job(named, job)
    broker, left_out = Broker(bootstrap, kafka), places(skip_record)
    loaded = None if path is None else as_known(load(path))
    jobs = {} if loaded is None else known_jobs(loaded)
    if output is not None:
        _refuse("--output", {"--job": job})
        if loaded is not None and upstream is None:
            refuse_read_once(loaded)
        target = upstream_target(loaded, broker, upstream, table, barrier_topic)
        chosen = [_described(target, output, columns, condition, read)]
    else:
        described = {"--upstream": upstream, "--barrier-topic": barrier_topic, "--table": table}
        _refuse("no --output", {**described, "--columns": columns, "--filter": condition, "--read": read})
        target, chosen = _configured(path, loaded, jobs, job, broker)
    siblings = [each.output for each in jobs.values()]
    reports = []
    for wanted in chosen:
        report = judged(target, wanted, siblings, require_complete=require_complete, left_out=left_out)
        reports.append(report)
        if as_json:
            print(json.dumps(report.to_dict()))  # noqa: T201
        else:
            _print(report, show, wanted)
    _raise_if_broken(reports)


def _configured(
    path: Path | None,
    config: ServiceConfig | None,
    jobs: dict[str, JobDefinition],
    name: str | None,
    broker: Broker,
) -> tuple[Target, list[JobDefinition]]:
    """The upstream, and the outputs to judge, with the ids of their schemas if they have some."""
    if path is None or config is None:
        raise usage("no configuration and no --output", "one of them")
    if not jobs:
        raise ConfigError(
            Code.NO_JOB, where=str(path), found="no job, neither in the configuration nor in its state"
        )
    chosen = [job_named(name, jobs)] if name else jobs.values()
    refuse_read_once(config)
    schemas = OutputSchemas(config.registry, config.table)
    return upstream_target(config, broker, None, None), [schemas.registered(job) for job in chosen]


def _described(
    upstream: Target, output: str, columns: str | None, condition: str | None, read: str | None
) -> JobDefinition:
    declared: dict[str, Any] = {"name": "verify", "output": output, "filter": condition, "read": read}
    if columns is not None:
        declared["columns"] = columns_of_text(columns)
    return JobDefinition.declare(declared, upstream.table, where="options")


def _refuse(given: str, others: Mapping[str, object]) -> None:
    surplus = [option for option, value in others.items() if value is not None]
    if surplus:
        raise usage(f"{given} and {', '.join(surplus)}", "one or the other")


def judged(
    upstream: Target,
    job: JobDefinition,
    siblings: Sequence[str] = (),
    *,
    require_complete: bool,
    left_out: frozenset[RecordId] = frozenset(),
) -> Report:
    """The report, under a progress bar on a terminal. Raises: as `verify_job`."""
    with _progress_bar(job.output) as on_progress:
        try:
            return verify_job(
                upstream.kafka,
                upstream.topic,
                job,
                upstream.table,
                upstream_format=upstream.format,
                upstream_barriers=upstream.barriers,
                progress=on_progress,
                require_complete=require_complete,
                left_out=left_out,
                siblings=siblings,
                initial=None if upstream.start is None else initial_table(upstream.start, upstream.table),
            )
        except InputError as error:
            raise with_option(error, upstream.topic) from error


@contextmanager
def _progress_bar(title: str) -> Iterator[OnProgress]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda read, total: bar.update(task, completed=read, total=total)


def _print(report: Report, show: int, job: JobDefinition) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(_summary(report, job))
    for text in report.went_back[:show]:
        console.print(escape(f"log went back, and what followed is in the output: {text}"))
    for finding in report.findings[:show]:
        console.print(_line(finding))
    if report.found > show:
        console.print(f"… and {report.found - show} more")


def _summary(report: Report, job: JobDefinition) -> Table:
    has_ended = job.until_complete and report.vnodes_finished == report.vnode_count
    behind = "since its end" if has_ended else "not yet in the output"
    verdict = "[green]the law holds[/green]" if report.clean else f"[red]{report.found} findings[/red]"
    records = report.upstream_records + report.output_records
    rows = {
        "records": f"{report.upstream_records:,} upstream, {report.output_records:,} output",
        "barriers": f"{report.barriers:,} checked, {report.behind:,} {behind}",
        report.parts: f"{report.vnodes_finished} of {report.vnode_count} finished, "
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


def _line(finding: LawFinding) -> str:
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
        )
