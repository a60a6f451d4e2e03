"""A job as the command line describes it: a file, single options, or both."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.errors import Code
from schemas.formats.registry import OUTPUT_FORMATS
from schemas.job import JobDefinition
from schemas.kinds.scans import SCAN_KINDS
from schemas.settings.documents import read_mapping
from schemas.table import TableSchema
from streaming.cli.configuration import usage

File = Annotated[
    Path | None,
    typer.Argument(
        help="File with the job, YAML or JSON, as below `jobs` of a configuration.", dir_okay=False
    ),
]
Name = Annotated[str | None, typer.Option(help="Name of the job.")]
Output = Annotated[str | None, typer.Option(help="Output topic; made if it is not there.")]
Columns = Annotated[str | None, typer.Option(help="Columns of the output, comma-separated; all if left out.")]
Filter = Annotated[
    str | None, typer.Option("--filter", help="Rows to send, as in \"amount >= 10 AND region = 'EU'\".")
]
Partitions = Annotated[int | None, typer.Option("--output-partitions", help="Partitions of the output.")]
Limit = Annotated[int | None, typer.Option("--rate-limit", help="Snapshot rows per second; 0 for none.")]
Budget = Annotated[
    str | None, typer.Option("--latency-budget", help="How long a batch may read the snapshot, as in 2s.")
]
Format = Annotated[
    str | None, typer.Option("--format", help=f"What records look like: {', '.join(OUTPUT_FORMATS)}.")
]
Encoding = Annotated[str | None, typer.Option(help="Of the records, as the format has them: json, avro ...")]
Tombstones = Annotated[
    bool | None,
    typer.Option(
        "--tombstones/--no-tombstones", help="With format debezium: an empty record behind each delete."
    ),
]
Read = Annotated[
    str | None, typer.Option("--read", help=f"What is read beside live changes: {', '.join(SCAN_KINDS)}.")
]
BarrierTopic = Annotated[
    str | None, typer.Option("--barrier-topic", help="Topic for the barriers of the output, made with it.")
]


def declared(file: Path | None, columns: str | None, **given: str | int | None) -> dict[Any, Any]:
    """What file and options say together, as it stands below `jobs`; options win over the file.

    Raises: ConfigError: JOB_INVALID for a file that can't be read, USAGE when nothing names the job or its output.
    """
    job: dict[Any, Any] = {}
    if file is not None:
        job = read_mapping(file, Code.JOB_INVALID, expected="a YAML or JSON file with name and output")
    if columns is not None:
        job["columns"] = [name.strip() for name in columns.split(",")]
    job |= {key: value for key, value in given.items() if value is not None}
    missing = [f"--{key}" for key in ("name", "output") if key not in job]
    if missing and file is None:
        found = f"no {' and no '.join(missing)}"
        raise usage(found, "a job: --name and --output, or a file that describes it")
    return job


def checked(job: dict[Any, Any], table: TableSchema, file: Path | None) -> JobDefinition:
    """The job, for its table. Raises: ConfigError with every fault at once."""
    return JobDefinition.declare(job, table, where=str(file or "job"))
