"""A backfill job: what it reads, what it keeps, where it sends it.

A definition never changes after the job was created; what mutations change (pause, limit) is state and kept
elsewhere. Its JSON is what an `Add` mutation carries, so its form is stable: all keys, sorted, defaults
written out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.avro.registered import SchemaIds
from schemas.errors import Code, ConfigError
from schemas.faults import Faults, brief
from schemas.filter.ast import columns_of
from schemas.formats.protocol import Half, OutputFormat
from schemas.formats.registry import DEFAULT, OUTPUT_FORMATS, declare_format
from schemas.kinds.configs import (
    DEFAULT_SCAN,
    DEFAULT_SINK,
    ScanConfig,
    SinkConfig,
    declare_scan,
    declare_sink,
    scan_declaration,
)
from schemas.kinds.projection import (
    OutputColumn,
    declared_key,
    declared_projection,
    key_of,
    output_columns,
    plain,
)
from schemas.settings import job_keys
from schemas.settings.limits import duration_text
from schemas.table import Column, TableSchema
from schemas.topics import DEAD_LETTERS_SUFFIX, barriers_of_output, no_compaction


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """A validated job of one table. Build it with `declare`, which reports every fault at once.

    `columns` are the output's, in this order. `filter` is its canonical text. `rate_limit` is in snapshot rows per
    second (None unlimited, 0 none). `latency_budget_ms` bounds how much a snapshot read delays live changes.
    `replication_factor` and `topic_config` are those of a topic that is created (None and nothing: the broker's).
    `format` is that of the output's records, `sink` what they are written to. `barrier_topic` has its barriers; with
    None they are records of the output. `scan`, `read` in a definition, is what the snapshot is read from. `headers`
    are the names of those that live records keep. `vnode_count` is the table's: it takes part in `part_count`, not in
    the definition as written; it is 0 where vnodes are the upstream's partitions. `output_partitions` is 0 where the
    output has as many as the upstream, until the service has counted those (`with_partitions`). `paused`: it is created
    paused; later pauses are state. `from_now`: no row from before its start is sent. `until_complete`: it ends once all
    rows are sent. `hash_key_file` has the key of its hashes, on each machine with lanes. `key`: the table's columns in
    the keys of its records, if not the primary key alone. `has_columns`: the declaration names its columns; else they
    are those that the table had. `sends_new`: it gets those that the table gets, after `first_width` (0: unknown).
    """

    name: str
    output: str
    columns: tuple[OutputColumn, ...]
    filter: str | None
    output_partitions: int
    rate_limit: int | None
    latency_budget_ms: int | None
    vnode_count: int
    replication_factor: int | None = None
    topic_config: tuple[tuple[str, str], ...] = ()
    allow_retention: bool = False
    format: OutputFormat = DEFAULT
    sink: SinkConfig = DEFAULT_SINK
    scan: ScanConfig = DEFAULT_SCAN
    barrier_topic: str | None = None
    headers: tuple[str, ...] = ()
    paused: bool = False
    from_now: bool = False
    until_complete: bool = False
    hash_key_file: str | None = None
    key: tuple[str, ...] = ()
    has_columns: bool = field(default=True, compare=False)
    sends_new: bool = False
    first_width: int = 0

    @classmethod
    def declare(
        cls, declaration: Mapping[str, Any], table: TableSchema, *, where: str = "job"
    ) -> JobDefinition:
        """Check a job as read from YAML or JSON.

        Raises: ConfigError with every fault in one message. Its code is JOB_NAME_INVALID, or the filter's
        (EXPRESSION_NOT_ALLOWED, EXPRESSION_INVALID), when nothing else is wrong, JOB_INVALID otherwise.
        """
        faults = Faults(Code.JOB_INVALID)
        format_ = declare_format(OUTPUT_FORMATS, declaration, faults, beside=job_keys.OWN_KEYS) or DEFAULT
        columns = declared_projection(declaration.get("columns"), table, faults)
        scan = declare_scan(declaration.get("read"), faults)
        key = declared_key(declaration.get("key"), columns, table, scan, faults)
        in_key = output_columns(key_of(columns, key or table.primary_key), table)
        names = tuple(column.name for column in in_key)
        keyed = replace(table, columns=in_key, primary_key=names)
        for reason in filter(None, (format_.incompatibility(keyed), scan.incompatibility_with_table(table))):
            faults.add(reason)
        barriers = barriers_of_output(declaration, format_, faults)
        may_lose = job_keys.flag("allow_retention", declaration, faults)
        job = cls(
            job_keys.job_name(declaration.get("name"), faults),
            job_keys.output_topic(declaration.get("output"), faults),
            columns,
            _condition(declaration.get("filter"), table, faults),
            job_keys.output_partitions(declaration.get("output_partitions"), table, scan, faults),
            job_keys.rate_limit(declaration.get("rate_limit"), faults),
            job_keys.budget_ms(declaration.get("latency_budget"), faults),
            0 if table.by_partition else table.vnode_count,
            job_keys.replication_factor(declaration.get("replication_factor"), faults),
            job_keys.topic_config(
                declaration.get("topic_config"),
                faults,
                may_lose=may_lose,
                no_compaction=no_compaction(format_, barriers),
            ),
            may_lose,
            format_,
            declare_sink(declaration.get("sink"), faults),
            scan,
            barriers,
            job_keys.passed_headers(declaration.get("headers"), faults),
            job_keys.flag("paused", declaration, faults),
            *job_keys.extent(declaration, format_, faults),
            job_keys.hash_key_file(declaration.get("hash_key_file"), columns, faults),
            key,
            declaration.get("columns") is not None,
            job_keys.sends_new_columns(declaration, format_, barriers, faults),
        )
        if faults:
            raise faults.error(where=where)
        return job

    def to_json(self) -> str:
        """The definition as one line of JSON, equal for equal definitions.

        Newer keys are written only where they are not the default, so that older versions, which lack them, can read
        the rest.
        """
        budget = self.latency_budget_ms
        declaration: dict[str, Any] = {
            "name": self.name,
            "output": self.output,
            "columns": None if self.sends_new else [column.declared for column in self.columns],
            "filter": self.filter,
            "output_partitions": self.output_partitions or None,
            "rate_limit": self.rate_limit,
            "latency_budget": None if budget is None else duration_text(budget),
        }
        others = {
            "replication_factor": self.replication_factor,
            "topic_config": dict(self.topic_config),
            "allow_retention": self.allow_retention,
            "headers": list(self.headers),
            "paused": self.paused,
            "from": "now" if self.from_now else None,
            "until": "complete" if self.until_complete else None,
            "hash_key_file": self.hash_key_file,
            "key": list(self.key),
            "new_columns": "send" if self.sends_new else None,
        }
        declaration |= {key: value for key, value in others.items() if value}
        if self.format != DEFAULT:
            declaration |= self.format.model_dump()
        if self.barrier_topic is not None or self.format.barriers_are_beside:
            declaration["barrier_topic"] = self.with_barriers
        if self.sink != DEFAULT_SINK:
            declaration["sink"] = self.sink.model_dump()
        if self.scan != DEFAULT_SCAN:
            declaration["read"] = scan_declaration(self.scan)
        return json.dumps(declaration, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, table: TableSchema) -> JobDefinition:
        """Read a definition back. Raises: ConfigError as `declare`, also for text that is no JSON object."""
        try:
            declaration = json.loads(text, object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError):
            declaration = None
        if not isinstance(declaration, dict):
            raise ConfigError(
                Code.JOB_INVALID,
                where="job",
                found="a definition that is no JSON object, or names a key twice",
            )
        return cls.declare(declaration, table)

    def differences(self, other: JobDefinition, table_widths: Collection[int] = ()) -> list[str]:
        """The differences of `other`, the later one, as text for people: `filter was ..., is ...`.

        Keys of `job_keys.MAY_CHANGE` are not compared, and values of `job_keys.NOT_QUOTED` not named. Where `other`
        leaves its columns out they may be the first ones of the table, as many as one of `table_widths`.
        """
        ours, theirs = json.loads(self.to_json()), json.loads(other.to_json())
        width = len(self.columns)
        if not other.has_columns and width in table_widths and other.columns[:width] == self.columns:
            theirs["columns"] = ours["columns"]
        if self.parts_are_partitions and other.parts_are_partitions:  # the upstream's, which may gain some
            theirs["output_partitions"] = ours["output_partitions"]
        return [
            f"{key} is another one"
            if key in job_keys.NOT_QUOTED
            else f"{key} was {json.dumps(ours.get(key))}, is {json.dumps(theirs.get(key))}"
            for key in dict.fromkeys([*job_keys.KEYS, *ours, *theirs])
            if key not in job_keys.MAY_CHANGE and ours.get(key) != theirs.get(key)
        ]

    def schemas(self, table: TableSchema) -> Mapping[Half, Mapping[str, Any]]:
        """The schemas that a reader of its output needs, see `OutputFormat.schemas`."""
        return self.format.schemas(self.columns_of(table), self.key_columns_of(table), self.output)

    def columns_of(self, table: TableSchema) -> tuple[Column, ...]:
        """The columns of its output's rows."""
        return output_columns(self.columns, table)

    def key_columns_of(self, table: TableSchema) -> tuple[Column, ...]:
        """The columns of the keys of its output's records."""
        return output_columns(self.in_key(table), table)

    def in_key(self, table: TableSchema) -> tuple[OutputColumn, ...]:
        """The columns of the keys of its output's records, as they show the table's."""
        return key_of(self.columns, self.key or table.primary_key)

    def with_columns(self, names: Sequence[str], first: int) -> JobDefinition:
        """This job, whose columns are all of the table's, with these of them; it was made with the `first` ones.

        Raises: ConfigError(JOB_INVALID) for a table that lacks one.
        """
        columns = plain(names)
        if lacking := ", ".join(column.name for column in columns if column not in self.columns):
            found = f"a table without {lacking}, which its output has"
            raise ConfigError(Code.JOB_INVALID, where=f"job {self.name}", found=found)
        return replace(self, columns=columns, first_width=first)

    def with_all(self, table: TableSchema) -> JobDefinition:
        """This job with all columns of a table."""
        columns = plain(table.column_names)
        return replace(self, columns=columns, first_width=self.first_width or len(self.columns))

    def new_columns_of(self, table: TableSchema) -> tuple[tuple[str, str], ...]:
        """The columns that it was not made with, as barriers tell them (`Barrier.columns`)."""
        names = [column.name for column in self.columns[self.first_width or len(self.columns) :]]
        return tuple((name, json.dumps(table.by_name[name].announced)) for name in names)

    def read_columns(self, table: TableSchema) -> tuple[str, ...]:
        """The table's columns that a row is read with: those that it shows, then what key and filter need besides."""
        from schemas.filter.parse import parse_filter

        filtered = () if self.filter is None else columns_of(parse_filter(self.filter, table))
        shown = (column.source for column in self.columns if column.mask != "null")
        return tuple(dict.fromkeys([*shown, *table.primary_key, *self.key, *filtered]))

    @property
    def is_masked(self) -> bool:
        """True if its output is not to have what the upstream's records have."""
        return any(column.mask for column in self.columns)

    def with_ids(self, ids: SchemaIds) -> JobDefinition:
        """This job with the ids of its registered schemas, which are no part of the declaration."""
        return replace(self, format=self.format.with_ids(ids))

    @property
    def form(self) -> str:
        """Format and encoding of the output, for people: `debezium json`."""
        return self.format.form

    @property
    def dead_letters(self) -> str:
        """The topic for invalid records of the upstream, where they are parked."""
        return self.output + DEAD_LETTERS_SUFFIX

    @property
    def with_barriers(self) -> str:
        """The topic that its barriers are records of."""
        return self.barrier_topic or self.output

    @property
    def may_compact(self) -> bool:
        return no_compaction(self.format, self.barrier_topic) is None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it may write to."""
        beside = () if self.barrier_topic is None else (self.barrier_topic,)
        return self.output, *beside, self.dead_letters

    @property
    def part_count(self) -> int:
        """The number of parts of its scan: vnodes, where it reads the replica."""
        return self.scan.part_count(self.vnode_count or self.output_partitions, self.output_partitions)

    @property
    def is_coupled(self) -> bool:
        """True for a no-shuffle backfill: one lane for each upstream partition, until it is complete."""
        return not (self.vnode_count or self.scan.reads_upstream)

    @property
    def parts_are_partitions(self) -> bool:
        """True if its parts are the upstream's partitions, which the output has too."""
        return self.scan.reads_upstream or self.is_coupled

    @property
    def part_name(self) -> str:
        """The word for a part in messages."""
        return "partition" if self.parts_are_partitions else "vnode"

    def with_partitions(self, upstream: int) -> JobDefinition:
        """This job; `output_partitions` is set to the upstream's number where it is 0."""
        return self if self.output_partitions else replace(self, output_partitions=upstream)

    def partition_of(self, part: int) -> int:
        """The output partition in which a part of its scan lives."""
        return part * self.output_partitions // self.part_count


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    declaration = dict(pairs)
    if len(declaration) != len(pairs):
        raise ValueError("a key twice")
    return declaration


def _condition(declared: object, table: TableSchema, faults: Faults) -> str | None:
    if declared is None:
        return None
    if not isinstance(declared, str):
        faults.add(f"filter {brief(declared)} is no text")
        return None
    from schemas.filter.parse import parse_filter  # builds its parser, which most commands do not need

    try:
        return str(parse_filter(declared, table))
    except ConfigError as error:
        faults.add(f"{error.where}: {error.found}, where there may be {error.expected}", error.code)
        return None
