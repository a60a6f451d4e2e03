"""Options that commands for jobs share: a job's definition, and the request to a running service."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.errors import Code
from schemas.formats.registry import OUTPUT_FORMATS
from schemas.job import JobDefinition
from schemas.kinds.configs import SCAN_KINDS
from schemas.kinds.projection import columns_of_text
from schemas.settings.documents import read_mapping
from schemas.table import TableSchema
from streaming.cli.configuration import JsonOption, places, usage
from streaming.source.barriers.injecting.control_requests import TryAgain

MOST_TIMEOUT_S = 86_400.0
_KINDS, _SCANS = ", ".join(OUTPUT_FORMATS), ", ".join(SCAN_KINDS)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of a request to a running service, and the form of its result."""

    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Send the request, and don't wait for its barrier.")
    ] = False
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            help="Seconds to wait for a barrier, after which the request is refused, and for its batch.",
            min=0.1,
            max=MOST_TIMEOUT_S,
        ),
    ] = 30.0
    as_json: JsonOption = False


@dataclass(frozen=True, slots=True)
class SuspendedOptions:
    """Options of a decision on a suspended table."""

    table: Annotated[str | None, typer.Option("--table", help="The suspended table, in place of a job.")] = (
        None
    )
    skip_record: Annotated[
        list[str] | None,
        typer.Option(
            help="With --table: leave an upstream record out if it is invalid, PARTITION@OFFSET. May be repeated."
        ),
    ] = None
    accept_log_reset: Annotated[
        bool,
        typer.Option(
            "--accept-log-reset",
            help="With --table: let a database's log begin anew at lower positions once more.",
        ),
    ] = False

    def action(self) -> TryAgain:
        """The decision. Raises: ConfigError(USAGE)."""
        return TryAgain(places(self.skip_record), self.accept_log_reset)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """A job as the command line describes it: a file, single options, or both; options win over the file."""

    file: Annotated[
        Path | None,
        typer.Argument(
            help="File with the job, YAML or JSON, as below `jobs` of a configuration.", dir_okay=False
        ),
    ] = None
    name: Annotated[str | None, typer.Option(help="Name of the job.")] = None
    output: Annotated[str | None, typer.Option(help="Output topic; made if it is not there.")] = None
    columns: Annotated[
        str | None,
        typer.Option(help="Columns of the output, as in 'id, mail: hash(email)'; all if left out."),
    ] = None
    new_columns: Annotated[
        str | None, typer.Option(help="`send`: the output gets the columns that the table gets.")
    ] = None
    key: Annotated[
        str | None,
        typer.Option(help="Columns in the keys of records, which hold the primary key, as in region,id."),
    ] = None
    hash_key_file: Annotated[
        str | None, typer.Option(help="File with the key of hashes, where the service runs.")
    ] = None
    filter: Annotated[
        str | None, typer.Option(help="Rows to send, as in \"amount >= 10 AND region = 'EU'\".")
    ] = None
    output_partitions: Annotated[int | None, typer.Option(help="Partitions of the output.")] = None
    rate_limit: Annotated[int | None, typer.Option(help="Snapshot rows per second; 0 for none.")] = None
    latency_budget: Annotated[
        str | None, typer.Option(help="How long a batch may read the snapshot, as in 2s.")
    ] = None
    format: Annotated[str | None, typer.Option(help=f"What records look like: {_KINDS}.")] = None
    encoding: Annotated[
        str | None, typer.Option(help="Of the records, as the format has them: json, avro ...")
    ] = None
    tombstones: Annotated[
        bool | None,
        typer.Option(
            "--tombstones/--no-tombstones", help="With format debezium: an empty record behind each delete."
        ),
    ] = None
    barrier_topic: Annotated[
        str | None, typer.Option(help="Topic for the barriers of the output, made with it.")
    ] = None
    paused: Annotated[
        bool | None, typer.Option("--paused", help="Create it paused, until `backfill resume`.")
    ] = None
    from_: Annotated[
        str | None, typer.Option("--from", help="`now`: send changes alone, no row from before.")
    ] = None
    until: Annotated[str | None, typer.Option(help="`complete`: end the output once it has all rows.")] = None
    read: Annotated[str | None, typer.Option(help=f"What is read beside live changes: {_SCANS}.")] = None

    def declared(self) -> dict[Any, Any]:
        """The job as it would stand below `jobs`.

        Raises: ConfigError: JOB_INVALID for a file that can't be read, USAGE when nothing names the job or its output.
        """
        job: dict[Any, Any] = {}
        if self.file is not None:
            job = read_mapping(
                self.file, Code.JOB_INVALID, expected="a YAML or JSON file with name and output"
            )
        given = {
            each.name.rstrip("_"): getattr(self, each.name) for each in fields(self) if each.name != "file"
        }
        if self.columns is not None:
            given["columns"] = columns_of_text(self.columns)
        if self.key is not None:
            given["key"] = columns_of_text(self.key)
        job |= {key: value for key, value in given.items() if value is not None}
        missing = [f"--{key}" for key in ("name", "output") if key not in job]
        if missing and self.file is None:
            found = f"no {' and no '.join(missing)}"
            raise usage(found, "a job: --name and --output, or a file that describes it")
        return job

    def checked(self, declared: dict[Any, Any], table: TableSchema) -> JobDefinition:
        """The job, for its table. Raises: ConfigError with every fault at once."""
        return JobDefinition.declare(declared, table, where=str(self.file or "job"))
