"""`backfill plan`: an estimate of a job, and what would be in its way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from schemas.errors import BackfillError, Code, StateError
from schemas.job import JobDefinition
from schemas.kinds.projection import key_of
from schemas.records import Add
from schemas.settings.config import ServiceConfig
from state.initial.start import Survey
from state.initial.table import SourceTable
from state.small_files import EmptyRanges
from streaming.cli.configuration import ConfigOption, JsonOption, required_config
from streaming.cli.jobs.listing import grid
from streaming.cli.jobs.options import JobOptions
from streaming.cli.jobs.served import Served
from streaming.cli.jobs.status import reading_text
from streaming.cli.jobs.watching import seconds_text
from streaming.control.cost import Cost, cost_of
from streaming.kafka.topics import known_settings, partitions_of, watermarks
from streaming.registry.client import Registry, incompatible, schema_faults
from streaming.service.left_out_columns import load
from streaming.source.retention import Gaps, kept_ms, margins

KeptSeconds = Callable[[str], float | None]
"""For how long a topic keeps its records, None for ever or where that is not to be known."""


def command(
    config: ConfigOption = None,
    *,
    options: JobOptions,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print what a reader has to know of keys and values, too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate what a job will read, send and take, and what would be in its way. Nothing is started or changed."""
    declared = options.declared()
    served = _served(config, as_json)
    if served is None:
        return
    job = served.counted(options.checked(declared, served.config.table))
    upstream = served.config.upstream
    cost = cost_of(job, served.config.table, served.storage, lambda: watermarks(served.kafka, upstream))
    lanes = served.state_reader.read().lanes or served.config.lanes
    limit_of_all = served.config.limits.rate_limit
    seconds = cost.seconds(job, lanes, limit_of_all)
    registers, incompatibilities = _verdicts(served, job)
    kept_s = cache(partial(_kept_s, served))
    facts = _facts(job, cost, _duration(job, cost, seconds, lanes, limit_of_all), registers)
    facts = {**_start(served), **facts, "upstream keeps": _upstream_keeps(served, kept_s)}
    warnings = list(_warnings(served, job, seconds, incompatibilities, kept_s))
    if as_json:
        figures = {"job": job.name, "output_rows": cost.output_rows, "seconds": seconds, **asdict(cost)}
        schemas = {"schemas": job.schemas(served.config.table)} if schema else {}
        typer.echo(json.dumps({**figures, "facts": facts, "warnings": warnings, **schemas}))
        return
    Console().print(grid(facts.items()))
    if schema:
        typer.echo(json.dumps(job.schemas(served.config.table)))
    typer.echo("\n".join(f"warning: {each}" for each in warnings) or "nothing is in its way")


def _served(config: Path | None, as_json: bool) -> Served | None:
    """The service; None where it has never run, and its reading of PostgreSQL was printed in its place."""
    try:
        return Served.of(config)
    except StateError as error:
        declared = load(required_config(config))
        if error.code is not Code.STATE_PATH_INVALID or declared.initial_postgres is None:
            raise
        from streaming.service.initial.database import survey_of

        facts = {"starts with": _reading_text(survey_of(declared, declared.initial_postgres), declared)}
        if as_json:
            typer.echo(json.dumps({"facts": facts}))
        else:
            Console().print(grid(facts.items()))
            typer.echo("nothing is in its way; what a job costs is known once the service runs")
        return None


def _reading_text(survey: Survey, config: ServiceConfig) -> str:
    declared = config.initial_postgres
    assert declared is not None
    limit, readers = declared.rate_limit, declared.readers
    if limit is None:
        takes = f"as fast as {readers} connection{'s' if readers > 1 else ''} can read them"
    else:
        takes = "never: its limit is 0" if limit == 0 else f"{seconds_text(survey.rows / limit)} or more"
        takes += "" if limit == 0 else f" with its limit of {limit:,} rows/s"
    return f"about {survey.rows:,} rows in {_bytes_text(survey.size)} of {declared}: {takes}"


def _start(served: Served) -> dict[str, str]:
    """The copy that comes before any job, where the state starts from a table that is not there yet."""
    view = served.state_reader.read()
    if view.database is not None and view.read is not None:
        text = f"{_reading_text(view.database.survey, served.config)}; {reading_text(view)}"
        return {"starts with": text}
    if view.start is None or view.copy is None:
        return {}
    declared = view.start.declared
    size = _bytes_text(SourceTable(declared.uri, declared.version).size)
    rows = "rows" if view.copy.of is None else f"{view.copy.of:,} rows"
    done = f"{view.copy.copied:,} are copied, {view.copy.sorted:,} of them sorted"
    return {
        "starts with": f"{rows} in {size} of Parquet, {declared.uri} at version {declared.version}: {done}"
    }


def _verdicts(served: Served, job: JobDefinition) -> tuple[list[str], list[str]]:
    """Subjects of a job's schemas with the registry's answers, and the errors among these."""
    said, wrong = [], []
    try:
        for subject, verdict in served.output_schemas.subject_states(job):
            said.append(f"{subject} ({verdict or 'incompatible'})")
            if verdict is None:
                wrong.append(str(incompatible(subject)))
    except BackfillError as error:
        wrong.append(str(error))
    return said, wrong


def _upstream_keeps(served: Served, kept_s_of: KeptSeconds) -> str:
    """For how long, and how much of that is left for what the service has yet to read."""
    try:
        topic = served.config.upstream
        if (kept_s := kept_s_of(topic)) is None:
            return "every record, as far as can be known"
        first = Gaps(EmptyRanges(served.storage)).first(served.state_reader.read().next_offsets)
        marks, limit_ms = watermarks(served.kafka, topic), round(kept_s * 1_000)
        found = margins(served.kafka, topic, marks, first, kept_ms=limit_ms, now_ms=time.time() * 1_000)
    except BackfillError as error:
        # A broker that is away, or records that are gone: the rest is there to be read.
        return f"unknown: {error.found}"
    left_s = max(0.0, min((each.seconds for each in found), default=kept_s))
    return f"records for {seconds_text(kept_s)}, what was not read yet for {seconds_text(left_s)} more"


def _kept_s(served: Served, topic: str) -> float | None:
    settings = known_settings(served.kafka, topic)
    kept = None if settings is None else kept_ms(settings)
    return None if kept is None else kept / 1_000


def _facts(job: JobDefinition, cost: Cost, takes: str, schemas: Sequence[str]) -> dict[str, str]:
    return {
        **_read(job, cost),
        "to": f"{job.output}, {job.output_partitions} partitions, columns {', '.join(map(str, job.columns))}",
        **({"key": ", ".join(map(str, key_of(job.columns, job.key)))} if job.key else {}),
        "as": job.form,
        **({"headers": ", ".join(job.headers)} if job.headers else {}),
        **({"registers": ", ".join(schemas)} if schemas else {}),
        "barriers": "in the output" if job.barrier_topic is None else f"in {job.barrier_topic}",
        "takes": takes,
    }


def _read(job: JobDefinition, cost: Cost) -> dict[str, str]:
    """The records or rows that are read, what the filter keeps of them, and what is sent."""
    if job.from_now:
        kept = "all changes" if job.filter is None else "changes of rows that it lets through"
        return {"reads": "nothing: it begins now", "filter keeps": kept, "sends": "every change from then on"}
    kept = "all rows"
    if job.scan.reads_upstream:
        if job.filter is not None:
            kept = "what it lets through of each record: none was looked at"
        return {
            "reads": f"the topic's records since its beginning: {cost.rows:,} offsets, some of which hold none",
            "filter keeps": kept,
            "sends": "every change, in its partition's order",
        }
    if job.filter is not None and cost.kept_share is None:
        kept = "no rows yet"
    elif job.filter is not None:
        kept = f"{cost.kept_share:.1%} of {cost.sampled_rows:,} sampled rows"
    size = "" if cost.output_bytes is None else f", {_bytes_text(cost.output_bytes)} before compression"
    return {
        "reads": f"{cost.rows:,} rows in {_bytes_text(cost.replica_bytes)} of Parquet",
        "filter keeps": kept,
        "sends": f"about {cost.output_rows or 0:,} rows{size}",
    }


def _duration(
    job: JobDefinition, cost: Cost, seconds: float | None, lanes: int, limit_of_all: int | None
) -> str:
    if job.from_now:
        return "no time: there is nothing to read"
    if seconds is None and job.scan.reads_upstream and job.rate_limit is None:
        return "as long as the service takes to read and send them: it has no limit"
    if seconds is None:
        is_never = job.rate_limit == 0
        return "for ever: its limit is 0" if is_never else "unknown: there are no rows to try it with"
    limit = "no limit" if job.rate_limit is None else f"its limit of {job.rate_limit:,} rows/s"
    if limit_of_all is not None and (job.rate_limit is None or limit_of_all < job.rate_limit):
        limit = f"the limit of all jobs, {limit_of_all:,} rows/s,"
    rate = cost.core_rows_per_s
    tried = "" if rate is None else f"; a core reads and encodes {rate:,.0f} rows/s"
    return f"{seconds_text(seconds)} or more with {limit} and {lanes} lanes{tried}, Kafka not counted"


def _warnings(
    served: Served,
    job: JobDefinition,
    seconds: float | None,
    incompatibilities: Sequence[str],
    kept_s_of: KeptSeconds,
) -> Iterator[str]:
    config = served.config
    yield from schema_faults(Registry(config.registry), config.upstream, config.upstream_format, config.table)
    try:
        served.check(Add(job.to_json()))
    except BackfillError as error:
        yield str(error)
    try:
        served.sink_of(job).refuse_used(job)
    except BackfillError as error:
        yield str(error)
    yield from incompatibilities
    if job.paused and not job.from_now:
        yield "it is created paused: it reads nothing until `backfill resume`"
    if job.rate_limit == 0 and not job.from_now:
        yield "with a limit of 0 it reads nothing until `backfill throttle`"
    readers = (config.upstream, "the service, after a stop"), (job.output, "a consumer that is late")
    for topic, who in readers:
        if seconds is None or partitions_of(served.kafka, topic) is None:
            continue
        kept_s = kept_s_of(topic)
        if kept_s is not None and kept_s < seconds:
            yield f"{topic} keeps records for {seconds_text(kept_s)}: {who}, would miss some"


def _bytes_text(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
