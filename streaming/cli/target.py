"""Which topic of which broker, and what its rows look like: from a configuration or from single options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from schemas.config import ServiceConfig, load, load_kafka, reach
from schemas.documents import read_mapping
from schemas.errors import Code, ConfigError
from schemas.table import Column, TableSchema, declare, nearest
from streaming.cli.jobs import job_named, known_jobs
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.places import CONFIG_VARIABLE

ConfigArgument = Annotated[
    Path | None,
    typer.Argument(
        envvar=CONFIG_VARIABLE, help="Configuration file, YAML or JSON; options win over it.", dir_okay=False
    ),
]
BootstrapOption = Annotated[str | None, typer.Option(help="Broker, host:port.")]
KafkaOption = Annotated[
    Path | None,
    typer.Option(
        "--kafka",
        help="File with the section kafka of a configuration (bootstrap, security), without the rest.",
        dir_okay=False,
    ),
]
TopicOption = Annotated[str | None, typer.Option(help="Topic; by default that of the configuration.")]
TableOption = Annotated[
    Path | None, typer.Option("--table", help="File with the table's declaration.", dir_okay=False)
]


@dataclass(frozen=True, slots=True)
class Target:
    """A topic, how to reach it, and the columns of its rows."""

    kafka: KafkaSettings
    topic: str
    table: TableSchema
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Broker:
    """What options say of the broker: an address, and a file with the section `kafka`."""

    bootstrap: str | None
    file: Path | None

    def settings(self, config: ServiceConfig | None) -> KafkaSettings:
        """The broker to use: the file's section wins over the configuration's, the address over both.

        Raises: ConfigError(USAGE) if nothing names a broker, ConfigError(CONFIG_INVALID) as `load`.
        """
        if config is not None and self.file is None:
            kafka = reach(config.kafka, self.bootstrap)
        else:
            kafka = load_kafka(self.file, self.bootstrap)
        if kafka.bootstrap is None:
            raise _usage("no broker", "kafka.bootstrap in the configuration, --bootstrap or --kafka")
        return KafkaSettings.of(kafka)


def upstream_target(config: Path | None, broker: Broker, topic: str | None, table: Path | None) -> Target:
    """An upstream topic: rows have all columns of the table."""
    loaded = load(config) if config else None
    declared = _table(loaded, table)
    return Target(broker.settings(loaded), topic_of(loaded, topic), declared, declared.columns)


def topic_of(config: ServiceConfig | None, topic: str | None) -> str:
    """The upstream topic. Raises: ConfigError(USAGE) if neither names one."""
    name = topic or (config.upstream if config else None)
    if name is None:
        raise _usage("no topic", "a configuration, or --topic")
    return name


def output_target(
    config: Path | None,
    broker: Broker,
    topic: str | None,
    table: Path | None,
    job: str | None,
    columns: str | None,
) -> Target:
    """The output of a job, or any topic. `columns` are those of its rows, if not all."""
    loaded = load(config) if config else None
    declared = _table(loaded, table)
    names = tuple(name.strip() for name in columns.split(",")) if columns else declared.column_names
    unknown = [name for name in names if name not in declared.by_name]
    if unknown:
        hint = nearest(unknown[0], declared.column_names)
        raise _usage(f"column {unknown[0]!r} in --columns{hint}", f"columns of table {declared.name}")
    if job is not None:
        if loaded is None:
            raise _usage("--job without a configuration", "a configuration, or --topic")
        wanted = job_named(job, known_jobs(loaded))
        topic = topic or wanted.output
        names = names if columns else wanted.columns
    return Target(broker.settings(loaded), topic_of(loaded, topic), declared, declared.select(names))


def _table(config: ServiceConfig | None, table: Path | None) -> TableSchema:
    if table is not None:
        return read_table(table)
    if config is None:
        raise _usage("no table", "a configuration, or --table")
    return config.table


def read_table(path: Path) -> TableSchema:
    """A file that holds a declaration, alone or (as in a configuration) under the key `table`.

    Raises: ConfigError: USAGE for a file that can't be read, TABLE_INVALID for a declaration at fault.
    """
    expected = "a YAML or JSON file with name, columns and primary_key"
    declared = read_mapping(
        path, code=Code.USAGE, expected=expected, next_step="mend the file's name or content"
    )
    inner = declared.get("table", declared)
    return declare(inner if isinstance(inner, dict) else {}, where=str(path))


def _usage(found: str, expected: str) -> ConfigError:
    return ConfigError(
        Code.USAGE, found=found, expected=expected, next_step="add what is missing, or see --help"
    )
