"""The table of a state in its newest version, in place of the one that a configuration declares.

A configuration may be behind its state: what `backfill alter`, or a record with a new column, has added to the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from schemas.errors import BackfillError, Code, ConfigError, StateError
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.job import JobDefinition
from schemas.kinds.projection import plain
from schemas.kinds.table_changes import (
    TableChange,
    changes_from_json,
    missing_refusal,
    widened,
    widening_refusal,
)
from schemas.records import Alter
from schemas.settings.config import ServiceConfig
from schemas.table import TableSchema
from schemas.types import TypeName
from state.journal import PATH as JOURNAL_PATH
from state.journal import Entry, Journal
from state.storage import Storage
from state.values.bound_table import BoundTable
from state.values.plan import BatchPlan


def version_of(
    config: ServiceConfig,
    entry: Entry | None,
    changes: Sequence[TableChange] = (),
    *,
    state: str,
    refuse: Callable[[TableSchema, TableSchema], None] = lambda before, after: None,
) -> BoundTable:
    """The version that this configuration, and then these changes, make of the table of a state; a new one has none.

    `refuse` raises ConfigError for a table and its next version which outputs can't follow. Raises: StateError,
    ConfigError, as `BoundTable.declared` and `altered`; as `refuse`.
    """
    ignored = _ignored(config.upstream_format)
    if entry is None:
        return BoundTable.first(config.table, ignored)
    plan, begins_in_database = entry.plan, config.initial_postgres is not None
    is_read = not begins_in_database if plan is None else plan.reading is None
    jobs, epoch = ([], 0) if plan is None else ([job.state.definition for job in plan.jobs], plan.epoch)

    def altered(version: BoundTable, changes: Sequence[TableChange]) -> BoundTable:
        after = version.altered(changes, state=state, is_read=is_read, epoch=epoch)
        reason = missing_refusal(changes, jobs)
        if reason := reason or _refusal(config.upstream_format, version.table, after.table, jobs):
            raise ConfigError(Code.TABLE_INVALID, where=config.table.name, found=reason)
        refuse(version.table, after.table)
        return after

    version = BoundTable.from_binding(entry.table)
    version = version.declared(config.table, ignored, state=state, is_read=is_read)
    for asked in asked_by(plan):
        with suppress(ConfigError, StateError):  # it was refused
            version = altered(version, asked)
    return altered(version, changes) if changes else version


def _refusal(
    upstream: UpstreamFormat, before: TableSchema, after: TableSchema, jobs: Sequence[JobDefinition]
) -> str | None:
    """The reason why records of the upstream, or outputs of the jobs, can't have a table after changes."""
    for column in widened(before, after):
        if not isinstance(upstream, RegistryFormat):
            return f"{column.name} widened, and records of format {upstream.form!r} have its type for good"
        if column.type.name is TypeName.DOUBLE and not upstream.framed.value:
            return f"{column.name} widened: as a double, the text of a float is another number"
    return widening_refusal(before, after, jobs) or upstream.misfit_as_upstream(after)


def version_in(config: ServiceConfig, storage: Storage, changes: Sequence[TableChange] = ()) -> BoundTable:
    """`version_of` the state in a folder, whose journal is there."""
    return version_of(config, Journal(storage, config.table).current, changes, state=storage.root)


def asked_by(plan: BatchPlan | None) -> Iterator[tuple[TableChange, ...]]:
    """The changes in a plan's barriers. They may be made before its batch is done: rows are the same."""
    for aligned in () if plan is None else plan.barriers:
        if isinstance(mutation := aligned.barrier.mutation, Alter):
            yield changes_from_json(json.loads(mutation.changes))


def with_version(config: ServiceConfig, version: BoundTable) -> ServiceConfig:
    """The configuration with the table of a state; its jobs without columns have all of them."""
    table, source = version.table.with_partitions(config.table.vnode_count), config.source
    if isinstance(source.format, RegistryFormat):
        ignored = tuple(sorted(version.ignored.union(source.format.ignored_columns)))
        source = replace(source, format=source.format.model_copy(update={"ignored_columns": ignored}))
    columns = plain(table.column_names)
    jobs = tuple(job if job.has_columns else replace(job, columns=columns) for job in config.jobs)
    return config.model_copy(update={"table": table, "source": source, "jobs": jobs})


def as_known(config: ServiceConfig) -> ServiceConfig:
    """The configuration with the table of its state, if that is at hand and of this table."""
    storage = Storage(str(config.state))
    if not storage.exists(JOURNAL_PATH, "_delta_log"):
        return config
    try:
        return with_version(config, version_in(config, storage))
    except BackfillError:  # what is wrong with it is for others to say
        return config


def _ignored(format_: UpstreamFormat) -> Sequence[str] | None:
    """The names of the fields that are ignored; None where any may be."""
    if not isinstance(format_, RegistryFormat) or format_.on_new_column == "ignore":
        return None
    return format_.ignored_columns
