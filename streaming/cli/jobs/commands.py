"""`backfill create`, `pause`, `resume`, `throttle`, `drop`, `lanes`, `stop`: requests to a service that runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from schemas.records import Add, Drop, Lanes, Mutation, Pause, Resume, Stop, Throttle
from schemas.table import nearest
from streaming.cli.configuration import ConfigOption, required_config, usage
from streaming.cli.jobs.options import JobOptions, RequestOptions, SuspendedOptions
from streaming.cli.jobs.served import Served
from streaming.service.left_out_columns import load
from streaming.source.barriers.injecting.control_requests import (
    AlterAndTryAgain,
    DropAndTryAgain,
    EndProcess,
    SuspendedAction,
)

if TYPE_CHECKING:
    from streaming.control.service_api import Action

_SENT = {"sent": True}
_JobOrAllArgument = Annotated[str | None, typer.Argument(help="Name of the job.")]
_AllOption = Annotated[bool, typer.Option("--all", help="All jobs, in place of one.")]
_InitialOption = Annotated[
    bool, typer.Option("--initial", help="The reading of the table from PostgreSQL, in place of a job.")
]


def create(
    config: ConfigOption = None,
    *,
    options: JobOptions,
    wait: Annotated[
        bool, typer.Option("--wait", help="Show how it goes on until the backfill is complete.")
    ] = False,
    request: RequestOptions,
) -> None:
    """Start a backfill: the whole table goes to a new output topic, and then every change.

    Everything that can be wrong with the job is reported before anything is sent.
    """
    declared = options.declared()
    served = Served.of(config)
    job = served.counted(options.checked(declared, served.config.table))
    mutation = Add(job.to_json())
    served.check(mutation)
    served.refuse_ended()
    served.sink_of(job).refuse_used(job)
    if job.format.framed:
        served.output_schemas.register(job)
    with served.control_client(request.timeout) as client:
        if request.no_wait and not wait:
            client.send(mutation)
            _print(f"sent; {job.name} starts at the end of the batch that holds its barrier", _SENT, request)
            return
        applied = client.apply(mutation)
        seen = client.await_job(job.name)
    text = f"{job.name}: starts at barrier {seen.start}, after {applied.elapsed_s:.1f} s; output {job.output}"
    fields = {"job": job.name, "start": seen.start, "seconds": applied.elapsed_s, "output": job.output}
    _print(text, fields, request)
    if wait:
        _watch(served, job.name)


def _watch(served: Served, job: str) -> None:
    from streaming.cli.jobs.watching import watch

    try:
        reader, console = served.state_reader, Console(stderr=True)
        watch(console, reader.read, lambda view: [each for each in view.jobs if each.name == job])
    except KeyboardInterrupt:
        typer.echo(
            f"{job} goes on without this command: `backfill status {job} --follow` shows it, `backfill drop {job}` "
            "ends it",
            err=True,
        )
        raise


def pause(
    job: _JobOrAllArgument = None,
    config: ConfigOption = None,
    every: _AllOption = False,
    initial: _InitialOption = False,
    *,
    request: RequestOptions,
) -> None:
    """Halt the backfill of a job, or of all, at the next barrier. Live changes go on.

    It stays so through restarts, until `backfill resume`.
    """
    if initial:
        _pace(config, "pause", job, request, every=every)
    else:
        send_mutation(Served.of(config), Pause(_one(job, every)), request)


def resume(
    job: _JobOrAllArgument = None,
    config: ConfigOption = None,
    every: _AllOption = False,
    initial: _InitialOption = False,
    *,
    suspended: SuspendedOptions,
    request: RequestOptions,
) -> None:
    """Go on with the backfill of a job, or of all, from the next barrier on; or with a suspended table."""
    if suspended.table is not None:
        if job is not None or every or initial:
            raise usage("--table and something else to resume", "one of them")
        served = Served.of(config)
        name = served.config.table.name
        if suspended.table != name:
            hint = nearest(suspended.table, [name])
            raise usage(f"table {suspended.table!r}{hint}", f"the table of the configuration, {name}")
        lead_on(served, suspended.action(), request)
    elif suspended.skip_record or suspended.accept_log_reset:
        raise usage("a decision on a suspended table, and no --table", "the table's name after --table")
    elif initial:
        _pace(config, "resume", job, request, every=every)
    else:
        send_mutation(Served.of(config), Resume(_one(job, every)), request)


def throttle(
    job: Annotated[str, typer.Argument(help="Name of the job; left out with --initial.")],
    rows_per_second: Annotated[
        str | None, typer.Argument(help="Rows per second, 0 for none, `unlimited` to take the limit away.")
    ] = None,
    config: ConfigOption = None,
    initial: _InitialOption = False,
    *,
    request: RequestOptions,
) -> None:
    """Limit the backfill of a job, all its lanes together. Live changes are never limited."""
    if initial:
        surplus = None if rows_per_second is None else job
        limit = _limit(job if rows_per_second is None else rows_per_second)
        _pace(config, "throttle", surplus, request, limit=limit)
    elif rows_per_second is None:
        expected = "a job and its rows per second, or --initial and those of the table"
        raise usage("no rows per second", expected)
    else:
        send_mutation(Served.of(config), Throttle(job, _limit(rows_per_second)), request)


def drop(
    job: Annotated[str, typer.Argument(help="Name of the job.")],
    config: ConfigOption = None,
    delete_topics: Annotated[
        bool,
        typer.Option("--delete-topics", help="Then delete what it wrote: output, barriers and dead letters."),
    ] = False,
    *,
    request: RequestOptions,
) -> None:
    """End a job: all partitions of its output end with the same barrier. The topic stays as it is.

    The name is free again, for another output topic. A job that suspends its table is dropped as well.
    """
    if delete_topics and request.no_wait:
        raise usage("--delete-topics and --no-wait", "one or the other: topics go once the job has ended")
    served = Served.of(config)
    if served.state_reader.suspended_end() is not None:
        lead_on(served, DropAndTryAgain(job), request, deletes=delete_topics)
    else:
        send_mutation(served, Drop(job), request, deletes=delete_topics)


def lanes(
    number: Annotated[int, typer.Argument(help="Lanes from then on.", min=1)],
    config: ConfigOption = None,
    *,
    request: RequestOptions,
) -> None:
    """Change the number of lanes behind the batch that holds the next barrier, while jobs go on.

    It stays so through restarts, whatever `lanes` of the file says. All jobs have to be able to run with it.
    """
    send_mutation(Served.of(config), Lanes(number), request)


def stop(config: ConfigOption = None, *, request: RequestOptions) -> None:
    """End the service behind its open batch. All its outputs end with the same barrier, and go on from there.

    A supervisor may start it again at once.
    """
    served = Served.of(config)
    if served.state_reader.suspended_end() is not None:
        lead_on(served, EndProcess(), request)
    else:
        send_mutation(served, Stop(), request)


def lead_on(
    served: Served, action: SuspendedAction, request: RequestOptions, *, deletes: bool = False
) -> None:
    """Send a suspended table a decision, and print what came of it. `deletes` as in `send_mutation`."""
    from streaming.control.client import send_suspended
    from streaming.control.suspended import await_outcome, not_suspended, suspended_again

    name = served.config.table.name
    if served.state_reader.suspended_end() is None:
        raise not_suspended(name)
    if isinstance(action, DropAndTryAgain):
        served.check(Drop(action.job))
    if isinstance(action, AlterAndTryAgain):
        served.check_changes(action.changes)
    topics = served.topics_of(action.job) if isinstance(action, DropAndTryAgain) and deletes else ()
    _, offset = send_suspended(served.kafka, served.config.topics.control, action)
    if request.no_wait:
        _print("sent; a suspended service takes it within a second", _SENT, request)
        return
    if isinstance(action, EndProcess):
        _print(f"{name}: its service ends, and the table stays suspended", {"table": name}, request)
        return
    end = await_outcome(served.state_reader.last_end, offset, request.timeout)
    if end is not None and end.fault is not None:
        raise suspended_again(name, end)
    fields = {"table": name, "goes_on": True}
    _print_done(f"{name}: goes on", fields, request, served, topics, deletes=deletes)


def _limit(text: str) -> int | None:
    if text == "unlimited":
        return None
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    raise usage(f"rows per second {text[:40]!r}", "a whole number from 0, or `unlimited`")


def _one(job: str | None, every: bool) -> str | None:
    if (job is None) != every:
        raise usage("no job" if job is None else "a job and --all", "the name of a job, or --all")
    return job


def _pace(
    config: Path | None,
    action: Action,
    job: str | None,
    request: RequestOptions,
    *,
    every: bool = False,
    limit: int | None = None,
) -> None:
    """Change the pace at which the service reads its table, and print the new one."""
    from streaming.control.service_api import set_pace

    if job is not None or every:
        raise usage("a job and --initial", "one or the other")
    shown = set_pace(load(required_config(config)).http, action, limit)
    rate = "any number of" if shown["rate_limit"] is None else f"{shown['rate_limit']:,}"
    text = "paused" if shown["paused"] else f"{rate} rows per second"
    _print(f"table: {text}, {shown['rows']:,} of about {shown['of']:,} rows were read", shown, request)


def send_mutation(
    served: Served, mutation: Mutation, request: RequestOptions, *, deletes: bool = False
) -> None:
    """Check a mutation, send it and, if wanted, wait until it took effect; print the result in one line.

    `deletes`: once a job is dropped, so are its topics.
    """
    served.check(mutation)
    topics = served.topics_of(mutation.job) if isinstance(mutation, Drop) and deletes else ()
    served.refuse_ended()
    with served.control_client(request.timeout) as client:
        if request.no_wait:
            client.send(mutation)
            _print("sent; it takes effect at the end of the batch that holds its barrier", _SENT, request)
            return
        applied = client.apply(mutation)
    text = f"{applied.report.text}: since barrier {applied.barrier.curr}, after {applied.elapsed_s:.1f} s"
    fields = {"applied": applied.report.text, "barrier": applied.barrier.curr, "seconds": applied.elapsed_s}
    _print_done(text, fields, request, served, topics, deletes=deletes)


def _print_done(
    text: str,
    fields: Mapping[str, object],
    request: RequestOptions,
    served: Served,
    topics: Sequence[str],
    *,
    deletes: bool,
) -> None:
    """Print the result in one line; if a job `deletes` its topics, once they are gone."""
    if deletes:
        from streaming.kafka.topics import delete_topics

        gone = delete_topics(served.kafka, topics)
        text, fields = f"{text}; deleted {', '.join(gone)}", {**fields, "deleted": list(gone)}
    _print(text, fields, request)


def _print(text: str, fields: Mapping[str, object], request: RequestOptions) -> None:
    typer.echo(json.dumps(fields) if request.as_json else text)
