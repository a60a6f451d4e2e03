"""`backfill create`: a new job, in a service that runs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from schemas.records import Add
from streaming.cli.job_options import (
    BudgetOption,
    ColumnsOption,
    FileArgument,
    FilterOption,
    JobOptions,
    LimitOption,
    NameOption,
    OutputOption,
    PartitionsOption,
)
from streaming.cli.served import (
    DEFAULT_CONFIG,
    DEFAULT_PATIENCE_S,
    ConfigOption,
    NoWaitOption,
    PatienceOption,
    Served,
)
from streaming.cli.watching import watch_until_complete
from streaming.service.outputs import refuse_used_output


def command(
    file: FileArgument = None,
    config: ConfigOption = DEFAULT_CONFIG,
    name: NameOption = None,
    output: OutputOption = None,
    columns: ColumnsOption = None,
    condition: FilterOption = None,
    output_partitions: PartitionsOption = None,
    rate_limit: LimitOption = None,
    latency_budget: BudgetOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Show how it goes on until the backfill is complete.")
    ] = False,
    no_wait: NoWaitOption = False,
    timeout: PatienceOption = DEFAULT_PATIENCE_S,
) -> None:
    """Start a backfill: the whole table goes to a new output topic, and then every change.

    Everything that can be wrong with the job is told before anything is sent.
    """
    served = Served.of(config)
    options = JobOptions(
        file, name, output, columns, condition, output_partitions, rate_limit, latency_budget
    )
    job = options.definition(served.config.table)
    mutation = Add(job.to_json())
    served.check(mutation)
    refuse_used_output(served.kafka, job, served.config.limits)
    with served.steering(timeout) as steering:
        if no_wait and not wait:
            steering.send(mutation)
            typer.echo(f"sent; {job.name} starts at the end of the batch that holds its barrier")
            return
        granted = steering.ask(mutation)
        seen = steering.await_job(job.name)
    typer.echo(
        f"{job.name}: starts at barrier {seen.state.start}, after {granted.elapsed_s:.1f} s; output {job.output}"
    )
    if wait:
        watch_until_complete(Console(stderr=True), served.onlooker, job.name)
