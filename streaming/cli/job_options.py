"""A job as the command line describes it: a file, single options, or both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.documents import read_mapping
from schemas.errors import Code
from schemas.job import JobDefinition
from schemas.table import TableSchema

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        help="File with the job, YAML or JSON, as below `jobs` of a configuration.", dir_okay=False
    ),
]
NameOption = Annotated[str | None, typer.Option(help="Name of the job.")]
OutputOption = Annotated[str | None, typer.Option(help="Output topic; made if it is not there.")]
ColumnsOption = Annotated[
    str | None, typer.Option(help="Columns of the output, comma-separated; all if left out.")
]
FilterOption = Annotated[
    str | None, typer.Option("--filter", help="Rows to send, as in \"amount >= 10 AND region = 'EU'\".")
]
PartitionsOption = Annotated[
    int | None, typer.Option("--output-partitions", help="Partitions of the output.")
]
LimitOption = Annotated[
    int | None, typer.Option("--rate-limit", help="Snapshot rows per second; 0 for none.")
]
BudgetOption = Annotated[
    str | None, typer.Option("--latency-budget", help="How long a batch may read the snapshot, as in 2s.")
]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What was given; options win over the file."""

    file: Path | None
    name: str | None
    output: str | None
    columns: str | None
    filter: str | None
    output_partitions: int | None
    rate_limit: int | None
    latency_budget: str | None

    def definition(self, table: TableSchema) -> JobDefinition:
        """The job, checked. Raises: ConfigError with every fault at once."""
        declared: dict[Any, Any] = {}
        if self.file is not None:
            declared = read_mapping(
                self.file,
                code=Code.JOB_INVALID,
                expected="a YAML or JSON file with name and output",
                next_step="mend the file's name or content; nothing was created",
            )
        columns = self.columns and [name.strip() for name in self.columns.split(",")]
        given = {
            "name": self.name,
            "output": self.output,
            "columns": columns,
            "filter": self.filter,
            "output_partitions": self.output_partitions,
            "rate_limit": self.rate_limit,
            "latency_budget": self.latency_budget,
        }
        declared |= {key: value for key, value in given.items() if value is not None}
        return JobDefinition.declare(declared, table, where=str(self.file or "job"))
