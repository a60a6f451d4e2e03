"""The topic that a command reads or writes, its broker and its rows, from a configuration or from single options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from schemas.codec.results import row_type
from schemas.errors import Code, ConfigError
from schemas.faults import Faults
from schemas.formats.protocol import Format, Images
from schemas.formats.registry import DEFAULT
from schemas.job import JobDefinition
from schemas.kinds.projection import columns_of_text, declared_projection, key_of, output_columns
from schemas.kinds.table_changes import AddColumn, altered
from schemas.settings.config import ServiceConfig
from schemas.settings.documents import read_mapping
from schemas.settings.kafka import load_kafka, reach
from schemas.settings.registry import RegistryConfig
from schemas.table import Column, TableSchema, declare
from schemas.topics import UpstreamTopics
from state.columns import with_fills
from state.initial.start import Start, TopicStart
from state.initial.table import SourceTable
from streaming.cli.configuration import usage
from streaming.cli.jobs.served import job_named, known_jobs, view_at_hand
from streaming.control.known_table import as_known
from streaming.kafka.clients import KafkaSettings
from streaming.reading.records.forms import RecordForm
from streaming.reading.topic import Grown, RecordStream
from streaming.registry.client import AskedSchemas, Registry
from streaming.registry.outputs import OutputSchemas
from streaming.service.left_out_columns import load
from streaming.verify.fold import InitialTable

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
    """A topic, how to reach it, the columns of rows and keys, the format of its records, and its barrier topic."""

    kafka: KafkaSettings
    topic: str
    table: TableSchema
    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    format: Format = DEFAULT
    barriers: str | None = None
    by_partition: bool = False
    """True if its parts are the upstream's partitions: then it is complete partition by partition."""
    registry: RegistryConfig | None = None
    """Of the configuration, if there is one."""
    start: Start | TopicStart | None = None
    """Of an upstream: what its changes begin from, where that is not an empty table."""
    job: str | None = None
    """The job whose output it is, where a job named the topic."""
    output_form: RecordForm | None = None
    grown: Grown | None = None
    """Of an output that may get columns while it is read."""

    @property
    def form(self) -> RecordForm:
        """The form of its records."""
        return self.output_form or RecordForm.of(self.format)

    def stream(self) -> RecordStream:
        """A reader of its entries."""
        begins = self.start.offsets if self.start else ()
        return RecordStream(self.columns, self.key_columns, self.form, begins, self.grown)


@dataclass(frozen=True, slots=True)
class Broker:
    """Options for the broker: an address, and a file with the section `kafka`."""

    bootstrap: BootstrapOption = None
    kafka: KafkaOption = None

    def settings(self, config: ServiceConfig | None) -> KafkaSettings:
        """The broker to use: the file's section wins over the configuration's, the address over both.

        Raises: ConfigError(USAGE) if nothing names a broker, ConfigError(CONFIG_INVALID) as `load`.
        """
        if config is not None and self.kafka is None:
            kafka = reach(config.kafka, self.bootstrap)
        else:
            kafka = load_kafka(self.kafka, self.bootstrap)
        if kafka.bootstrap is None:
            raise usage("no broker", "kafka.bootstrap in the configuration, --bootstrap or --kafka")
        return KafkaSettings.from_config(kafka)


def upstream_target(
    config: ServiceConfig | None,
    broker: Broker,
    topic: str | None,
    table: Path | None,
    barriers: str | None = None,
    *,
    form: Format = DEFAULT,
) -> Target:
    """An upstream topic: rows have all columns of the table. `form` is that of a topic that an option names."""
    format_ = _format(config, topic, form)
    declared = _fitting(_table(config, table, format_), format_)
    topics = topics_of(config, topic, barriers=barriers)
    return Target(
        kafka=broker.settings(config),
        topic=topics.data,
        table=declared,
        columns=declared.columns,
        key_columns=declared.key_columns,
        format=format_,
        barriers=topics.barriers,
        registry=config.registry if config else None,
        start=None if config is None or topic is not None else start_in(config),
    )


def _format(config: ServiceConfig | None, topic: str | None, form: Format = DEFAULT) -> Format:
    """Of the configuration's upstream; a topic that an option names has another."""
    if config is None or topic is not None:
        return form
    return config.upstream_format.with_schemas(AskedSchemas(Registry(config.registry)))


def topic_of(config: ServiceConfig | None, topic: str | None) -> str:
    """The upstream topic. Raises: ConfigError(USAGE) if neither names one."""
    name = topic or (config.upstream if config else None)
    if name is None:
        raise usage("no topic", "a configuration, or --topic")
    return name


def topics_of(
    config: ServiceConfig | None,
    topic: str | None,
    *,
    barriers: str | None = None,
    control: str | None = None,
) -> UpstreamTopics:
    """Topics of the configuration; a topic that an option names has only the barrier and control topics of options.

    Raises: ConfigError(USAGE) as `topic_of`.
    """
    name = topic_of(config, topic)
    if config is not None and topic is None:
        barriers, control = barriers or config.topics.barriers, control or config.topics.control
    return UpstreamTopics.of(name, barriers=barriers, control=control)


def output_target(
    config: Path | None,
    broker: Broker,
    topic: str | None,
    table: Path | None,
    job: str | None,
    columns: str | None,
    *,
    folds: bool = False,
) -> Target:
    """The output of a job, or any topic, by default the upstream. `columns` are those of its rows, if not all.

    `folds`: it says what an upstream's changes begin from, too. Raises: as `refuse_read_once`.
    """
    loaded = as_known(load(config)) if config else None
    declared = _table(loaded, table, loaded.upstream_format if loaded else DEFAULT)
    faults = Faults(Code.USAGE)
    projection = declared_projection(columns_of_text(columns) if columns else None, declared, faults)
    if faults:
        raise faults.error(where="--columns")
    shown, in_key = projection, key_of(projection, declared.primary_key)
    format_, barriers, by_partition = _format(loaded, topic), None, declared.by_partition
    of_job = job if topic is None else None
    if loaded is not None and topic is None:
        barriers = loaded.topics.barriers
    start, form, grown = None, None, None
    if folds and loaded is not None and topic is None and job is None:
        refuse_read_once(loaded)
        start = start_in(loaded)
    if job is not None:
        if loaded is None:
            raise usage("--job without a configuration", "a configuration, or --topic")
        schemas = OutputSchemas(loaded.registry, loaded.table)
        wanted = schemas.registered(job_named(job, known_jobs(loaded)))
        topic, format_, barriers = topic or wanted.output, wanted.format, wanted.barrier_topic
        by_partition = wanted.parts_are_partitions
        if not columns:
            shown, form = wanted.columns, RecordForm.of_output(wanted, declared)
            grown = partial(_grown, loaded, wanted) if wanted.sends_new else None
        in_key = key_of(shown, wanted.key or declared.primary_key)
    return Target(
        kafka=broker.settings(loaded),
        topic=topic_of(loaded, topic),
        table=_fitting(declared, format_),
        columns=output_columns(shown, declared),
        key_columns=output_columns(in_key, declared),
        format=format_,
        barriers=barriers,
        by_partition=by_partition,
        start=start,
        job=of_job,
        output_form=form,
        grown=grown,
    )


def _grown(
    config: ServiceConfig, job: JobDefinition, announced: Sequence[tuple[str, str]]
) -> tuple[Sequence[Column], RecordForm]:
    """Columns and form of a job's output once its barriers have announced further columns."""
    new = {name: json.loads(text) for name, text in announced if name not in config.table.by_name}
    declared = {name: {"type": each["type"], "fill": each["fill"]} for name, each in new.items()}
    table = altered(config.table, [AddColumn(name, json.dumps(each)) for name, each in declared.items()])
    job = job.with_all(table)
    if job.format.framed:
        job = OutputSchemas(config.registry, table).found(job)
    return job.columns_of(table), RecordForm.of_output(job, table)


def refuse_read_once(config: ServiceConfig) -> None:
    """Refuse a start from PostgreSQL, which was read once, in many snapshots, and can't be read again.

    Raises: ConfigError(INITIAL_READ_ONCE).
    """
    if config.initial_postgres is not None:
        found = f"a start from {config.initial_postgres}"
        raise ConfigError(Code.INITIAL_READ_ONCE, where="initial.postgres", found=found)


def _table(config: ServiceConfig | None, table: Path | None, format_: Format) -> TableSchema:
    if table is not None:
        return read_table(table, format_)
    if config is None:
        raise usage("no table", "a configuration, or --table")
    return config.table


def _fitting(table: TableSchema, format_: Format) -> TableSchema:
    if reason := format_.incompatibility(table):
        raise usage(reason, "a topic of the configuration, or --table")
    return table


def read_table(path: Path, format_: Format = DEFAULT) -> TableSchema:
    """A file that holds a declaration, alone or (as in a configuration) under the key `table`.

    Raises: ConfigError: USAGE for a file that can't be read, TABLE_INVALID for an invalid declaration.
    """
    expected = "a YAML or JSON file with name, columns and primary_key"
    declared = read_mapping(
        path, Code.USAGE, expected=expected, next_step="correct the file's name or content"
    )
    inner = declared.get("table", declared)
    has_key = format_.images is not Images.ROWS
    return declare(inner if isinstance(inner, dict) else {}, where=str(path), has_key=has_key)


_ROWS_AT_ONCE = 1_000_000


def start_in(config: ServiceConfig) -> Start | TopicStart | None:
    """The start of the table of a configuration; the state's where there is one, as in the service.

    Rows without identity start at the topic's first record unless the state says otherwise.

    Raises: ConfigError(USAGE) for a timestamp where the state is not at hand, which knows its offsets.
    """
    if config.initial is None and config.table.has_key:
        return None
    view = view_at_hand(config)
    known = None if view is None else view.start or view.earliest
    if known is not None or config.initial is None:
        return known
    if config.initial.offsets is None:
        raise usage(
            "initial.delta.timestamp without the state that knows its offsets", "initial.delta.offsets"
        )
    return Start(config.initial, config.initial.offsets, None)


def initial_table(start: Start | TopicStart, table: TableSchema) -> InitialTable:
    """Its rows, read as they are asked for; columns that came later have their fill.

    Raises: ConfigError, as `SourceTable` and its `check`.
    """
    if isinstance(start, TopicStart):
        return InitialTable(start.offsets, ())
    source = SourceTable(start.declared.uri, start.declared.version)
    stored, schema = source.columns_of(table), row_type(table.columns)
    source.check(stored)

    def rows() -> Iterator[pa.Table]:
        for part in source.parts(_ROWS_AT_ONCE):
            for narrow in part.read(stored):
                found = narrow.cast(pa.schema([schema.field(name) for name in narrow.column_names]))
                for field in (field for field in schema if field.name not in stored.by_name):
                    found = found.append_column(field, pa.nulls(found.num_rows, field.type))
                yield with_fills(found, stored.column_names, table.fills)

    return InitialTable(start.offsets, rows())
