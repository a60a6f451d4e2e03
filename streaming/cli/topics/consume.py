"""`backfill consume`: read a topic of changes and barriers, and print, count or fold it."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from schemas.epoch import NO_EPOCH
from schemas.errors import Code, TopicError
from schemas.position import Key
from schemas.records import Barrier, Row
from schemas.table import Column
from streaming.cli.configuration import (
    ConfigOption,
    JobOrConfigArgument,
    job_or_config,
    one_job,
    optional_config,
    usage,
)
from streaming.cli.topics.target import (
    BootstrapOption,
    Broker,
    KafkaOption,
    TableOption,
    Target,
    TopicOption,
    initial_table,
    output_target,
)
from streaming.reading.records.forms import RowImages
from streaming.reading.topic import Complete, GrowingTopic, Record, RecordStream, TableFold, Tally, plain

_FOLLOW_S = 0.2
_PATIENT_S = 10.0
"""Time that an output may take to be made before it is said that it is waited for."""

FollowOption = Annotated[
    bool,
    typer.Option("--follow", help="Go on with what comes, each interval once it is complete, until Ctrl-C."),
]


class PrintedForm(StrEnum):
    """Forms of the output."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"


def command(
    word: JobOrConfigArgument = None,
    config: ConfigOption = None,
    job: Annotated[str | None, typer.Option(help="Read the output of this job.")] = None,
    topic: TopicOption = None,
    bootstrap: BootstrapOption = None,
    kafka: KafkaOption = None,
    table: TableOption = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the topic's rows, comma-separated, if not all.")
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="Print how many records there are of each kind.")
    ] = False,
    fold: Annotated[bool, typer.Option("--fold", help="Print the table that the changes add up to.")] = False,
    follow: FollowOption = False,
    at: Annotated[
        str | None,
        typer.Option(
            help="Only what lies before a barrier that all partitions have: its epoch, or `latest`.",
            metavar="EPOCH|latest",
        ),
    ] = None,
    until_complete: Annotated[
        bool, typer.Option("--until-complete", help="Go on until the backfill has finished every vnode.")
    ] = False,
    form: Annotated[
        PrintedForm, typer.Option("--format", help="JSON: one object a line.")
    ] = PrintedForm.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Read a topic from its beginning, committed records only, up to where it ends now.

    Printed are: place, epoch of the barrier before (a barrier's own), op, key, row. What barriers close belongs
    together: with --at the topic is read exactly up to one, so --fold --at latest is a table that there was.
    """
    form = _form(form, as_json=as_json, count=count, fold=fold)
    until = _until(at, follow=follow or until_complete)
    named, file = job_or_config(word)
    source, job, broker = optional_config(config, file), one_job(named, job), Broker(bootstrap, kafka)
    target = output_target(source, broker, topic, table, job, columns, folds=fold)
    if fold and target.form.rows_before is RowImages.NO_IDENTITY:
        raise usage("--fold of rows without identity, which add up to no table", "--count, or neither")
    stream, tally = target.stream(), Tally()
    rows = TableFold(target.form.rows_before, _first_rows(target), stream.whole)
    read = partial(_records, target, stream, tally, until, follow=follow, until_complete=until_complete)
    try:
        for record in read(whole=follow or at is not None):
            if fold and record.key is not None and not isinstance(record.body, Barrier):
                rows.apply(record.key, record.body, record.where)
            elif not (count or fold):
                sys.stdout.write(_line(record, target, stream.columns, form) + "\n")
    except KeyboardInterrupt:
        if not (follow or until_complete):
            raise
    if fold:
        _print_table(stream.columns, [*map(stream.whole, rows.rows.values())], form)
    elif count:
        _print_tally(tally, target, form)
    sys.stdout.flush()


def _first_rows(target: Target) -> Iterator[tuple[Key, Row]]:
    """The rows of the table that a topic's changes begin from, with their keys."""
    if target.start is not None:
        names = target.table.column_names
        places = [names.index(column.name) for column in target.columns]
        for row in initial_table(target.start, target.table).decoded(target.table):
            yield target.table.key_of(row), tuple(row[place] for place in places)


def _form(form: PrintedForm, *, as_json: bool, count: bool, fold: bool) -> PrintedForm:
    """Raises: ConfigError(USAGE) for options that do not go together."""
    if count and fold:
        raise usage("both --count and --fold", "one of them")
    if as_json and form is PrintedForm.CSV:
        raise usage("--json and --format csv", "one of them")
    if form is PrintedForm.CSV and not fold:
        raise usage("--format csv without --fold", "--fold, or another format")
    return PrintedForm.JSON if as_json else form


def _until(at: str | None, *, follow: bool) -> int | None:
    """The epoch that --at names, None for none or the latest. Raises: ConfigError(USAGE)."""
    if at is not None and follow:
        raise usage("--at with --follow or --until-complete", "one of them")
    if at in (None, "latest"):
        return None
    if not at.isdecimal():
        raise usage(f"--at {at!r}", "the epoch of a barrier in decimal, or latest")
    return int(at)


def _records(
    target: Target,
    stream: RecordStream,
    tally: Tally,
    until: int | None,
    *,
    whole: bool,
    follow: bool,
    until_complete: bool,
) -> Iterator[Record]:
    """The topic's records up to its end, then, if asked for, what comes after; counted in `tally`.

    With `whole`, only intervals that are complete, up to the barrier `until`.
    """
    with GrowingTopic(target.kafka, target.topic, target.barriers, stream) as topic:
        partitions = _await_partitions(topic, target, goes_on=follow or until_complete)
        parts = partitions if target.by_partition else target.table.vnode_count
        complete = Complete(partitions, until)
        while True:
            for new in topic.new():
                for record in complete.add(new) if whole else [new]:
                    tally.add(record)
                    yield record
            is_complete = until_complete and len(tally.finished) == parts
            if is_complete or not (follow or until_complete):
                break
            sys.stdout.flush()
            time.sleep(_FOLLOW_S)
    if until is not None and complete.epoch != until:
        raise usage(f"--at {until}", f"a barrier that all partitions have; the last one is {complete.epoch}")
    if whole and not follow and complete.epoch == NO_EPOCH:
        raise usage("--at latest", "a barrier that all partitions have; there is none yet")


def _await_partitions(topic: GrowingTopic, target: Target, *, goes_on: bool) -> int:
    """The count of partitions; `goes_on`: of the output of a job once its first batch has made it.

    Raises: TopicError(TOPIC_MISSING), for an output only unless `goes_on`.
    """
    began_s, is_said = time.monotonic(), False
    while True:
        try:
            return topic.partitions
        except TopicError as error:
            if target.job is None or error.code is not Code.TOPIC_MISSING:
                raise
            missing = TopicError(
                error.code,
                where=error.where,
                found=f"no output of job {target.job} yet",
                expected="the topic that the service makes in the first batch of the job",
                next_step="see `backfill status`; if the service does not run, start it with `backfill run`",
            )
        if not goes_on:
            raise missing
        if not is_said and time.monotonic() > began_s + _PATIENT_S:
            typer.echo(f"waits: {missing}", err=True)
            is_said = True
        time.sleep(_FOLLOW_S)


def _line(record: Record, target: Target, columns: Sequence[Column], form: PrintedForm) -> str:
    fields = _fields(record, target, columns, form)
    if form is PrintedForm.JSON:
        return _json({"at": record.where, "epoch": record.epoch, **fields})
    shown = (value if isinstance(value, str) else _json(value) for value in fields.values())
    return "\t".join([record.where, str(record.epoch), *shown])


def _fields(
    record: Record, target: Target, columns: Sequence[Column], form: PrintedForm
) -> dict[str, object]:
    body = record.body
    if isinstance(body, Barrier):
        mutation = type(body.mutation).__name__ if body.mutation else None
        progress = {
            "mutation": mutation,
            "partitions" if target.by_partition else "vnodes": len(body.progress),
        }
        announced = (
            {"columns": {name: json.loads(text) for name, text in body.columns}} if body.columns else {}
        )
        return {"op": "BARRIER", "kind": body.kind.name, "prev": body.prev, **progress, **announced}
    shown = plain if target.table.has_key else _bytes_as_they_came
    fields = {"op": body.op.name, "key": [shown(value) for value in record.key or ()]}
    if form is PrintedForm.JSON:
        return {**fields, "before": _named(body.before, columns), "after": _named(body.after, columns)}
    return {**fields, "row": _named(body.row, columns)}


def _bytes_as_they_came(key: bytes | None) -> object:
    """A key as a text, or as base64 in an object where it is none."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return {"base64": plain(key)}


def _named(row: Row | None, columns: Sequence[Column]) -> dict[str, object] | None:
    if row is None:
        return None
    return {column.name: plain(value) for column, value in zip(columns, row, strict=False)}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _print_table(columns: Sequence[Column], rows: list[Row], form: PrintedForm) -> None:
    names = [column.name for column in columns]
    match form:
        case PrintedForm.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(names)
            writer.writerows([plain(value) for value in row] for row in rows)
        case PrintedForm.JSON:
            sys.stdout.writelines(_json(_named(row, columns)) + "\n" for row in rows)
        case PrintedForm.TEXT:
            shown = Table(*names, caption=f"{len(rows)} rows")
            for row in rows:
                shown.add_row(*("" if value is None else str(plain(value)) for value in row))
            Console().print(shown)


def _print_tally(tally: Tally, target: Target, form: PrintedForm) -> None:
    parts = "partitions" if target.by_partition else "vnodes"
    fields = {
        "topic": target.topic,
        **{kind: tally.counts[kind] for kind in ("inserts", "updates", "deletes", "barriers")},
        "last_barrier": min(tally.epochs.values(), default=0),
        f"{parts}_finished": len(tally.finished),
        parts: len(tally.epochs) if target.by_partition else target.table.vnode_count,
    }
    if form is PrintedForm.JSON:
        sys.stdout.write(_json(fields) + "\n")
    else:
        sys.stdout.writelines(f"{name}\t{value}\n" for name, value in fields.items())
