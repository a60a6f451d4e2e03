"""Which topic of which broker, and what its rows look like: from a configuration or from single options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from schemas.config import ServiceConfig, load
from schemas.errors import Code, ConfigError
from schemas.table import Column, TableSchema, declare, nearest
from streaming.runtime.kafka import KafkaSettings

ConfigArgument = Annotated[
    Path | None, typer.Argument(help="Configuration file, YAML or JSON; options win over it.", dir_okay=False)
]
BootstrapOption = Annotated[str | None, typer.Option(help="Broker, host:port.")]
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


def settings_of(config: ServiceConfig | None, bootstrap: str | None) -> KafkaSettings:
    """The broker to use. Raises: ConfigError(USAGE) if neither names one."""
    address = bootstrap or (config.kafka.bootstrap if config else None)
    if address is None:
        raise _usage("no broker", "kafka.bootstrap in the configuration, or --bootstrap")
    return KafkaSettings(address)


def upstream_target(
    config: Path | None, bootstrap: str | None, topic: str | None, table: Path | None
) -> Target:
    """An upstream topic: rows have all columns of the table."""
    loaded = load(config) if config else None
    declared = _table(loaded, table)
    return Target(settings_of(loaded, bootstrap), topic_of(loaded, topic), declared, declared.columns)


def topic_of(config: ServiceConfig | None, topic: str | None) -> str:
    """The upstream topic. Raises: ConfigError(USAGE) if neither names one."""
    name = topic or (config.upstream if config else None)
    if name is None:
        raise _usage("no topic", "a configuration, or --topic")
    return name


def output_target(
    config: Path | None,
    bootstrap: str | None,
    topic: str | None,
    table: Path | None,
    job: str | None,
    columns: str | None,
) -> Target:
    """The output of a job of the configuration, or any topic. `columns` are those of its rows, if not all."""
    loaded = load(config) if config else None
    declared = _table(loaded, table)
    names = tuple(name.strip() for name in columns.split(",")) if columns else declared.column_names
    unknown = [name for name in names if name not in declared.by_name]
    if unknown:
        hint = nearest(unknown[0], declared.column_names)
        raise _usage(f"column {unknown[0]!r} in --columns{hint}", f"columns of table {declared.name}")
    if job is not None:
        jobs = {item.name: item for item in loaded.jobs} if loaded else {}
        if job not in jobs:
            raise _usage(f"job {job!r}{nearest(job, list(jobs))}", "a job of the configuration")
        topic = topic or jobs[job].output
        names = names if columns else jobs[job].columns
    return Target(settings_of(loaded, bootstrap), topic_of(loaded, topic), declared, declared.select(names))


def _table(config: ServiceConfig | None, table: Path | None) -> TableSchema:
    if table is not None:
        return _read_table(table)
    if config is None:
        raise _usage("no table", "a configuration, or --table")
    return config.table


def _read_table(path: Path) -> TableSchema:
    """A file that holds a declaration, alone or (as in a configuration) under the key `table`."""
    try:
        declared = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise _usage(f"{path}, which can't be read ({type(error).__name__})", "a YAML or JSON file") from None
    if not isinstance(declared, dict):
        raise _usage(f"{path}, which holds no mapping", "the declaration of a table")
    inner = declared.get("table", declared)
    return declare(inner if isinstance(inner, dict) else {}, where=str(path))


def _usage(found: str, expected: str) -> ConfigError:
    return ConfigError(
        Code.USAGE, found=found, expected=expected, next_step="add what is missing, or see --help"
    )
