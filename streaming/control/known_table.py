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
from streaming.core.jobs import MayAlter, jobs_after


def version_of(
    config: ServiceConfig,
    entry: Entry | None,
    changes: Sequence[TableChange] = (),
    *,
    state: str,
    refuse: Callable[[TableSchema, TableSchema], None] | None = None,
) -> BoundTable:
    """The version that this configuration, and then these changes, make of the table of a state; a new one has none.

    `refuse` raises ConfigError for a table and its next version which outputs can't follow. Raises: StateError,
    ConfigError, as `BoundTable.declared` and `altered`; as `refuse`.
    """
    ignored = _ignored(config.upstream_format)
    if entry is None:
        return BoundTable.first(config.table, ignored)
    plan = entry.plan
    is_read, epoch = _is_read(config, plan), 0 if plan is None else plan.epoch
    version = BoundTable.from_binding(entry.table)
    version = version.declared(config.table, ignored, state=state, is_read=is_read)

    def next_of(
        version: BoundTable, changes: Sequence[TableChange], jobs: Sequence[JobDefinition]
    ) -> BoundTable:
        after = version.altered(changes, state=state, is_read=is_read, epoch=epoch)
        reason = missing_refusal(changes, jobs) or widening_refusal(version.table, after.table, jobs)
        _raise(config, reason or _refusal(config.upstream_format, version.table, after.table))
        if refuse is not None:
            refuse(version.table, after.table)
        return after

    for asked in _asked_by(plan, config, version):
        with suppress(ConfigError, StateError):  # it was refused
            version = next_of(version, asked, ())
    jobs = () if plan is None else tuple(job.state.definition for job in plan.jobs)
    return next_of(version, changes, jobs) if changes else version


def _is_read(config: ServiceConfig, plan: BatchPlan | None) -> bool:
    """False while the table is being read from its database, or copied from another one."""
    starts_from_table = config.initial is not None or config.initial_postgres is not None
    return not starts_from_table if plan is None else plan.reading is None


def may_alter(config: ServiceConfig, version: BoundTable) -> MayAlter:
    """The judgement of changes that barriers of a plan ask for; `version` is the table's, before or behind them."""

    def judge(plan: BatchPlan, changes: Sequence[TableChange]) -> None:
        after = version.altered(changes, state=config.state, is_read=_is_read(config, plan), epoch=plan.epoch)
        _raise(config, _refusal(config.upstream_format, version.table, after.table))

    return judge


def _raise(config: ServiceConfig, reason: str | None) -> None:
    if reason is not None:
        raise ConfigError(Code.TABLE_INVALID, where=config.table.name, found=reason)


def _asked_by(
    plan: BatchPlan | None, config: ServiceConfig, version: BoundTable
) -> Iterator[tuple[TableChange, ...]]:
    """The changes that a plan's barriers ask for, but for those that its jobs or the state's form refuse.

    They may be made before its batch is done: rows are the same.
    """
    if plan is not None:
        reports = jobs_after(plan, version.table, may_alter(config, version)).reports
        refused = {report.epoch for report in reports if report.refused}
        yield from (changes for epoch, changes in changes_of(plan) if epoch not in refused)


def _refusal(upstream: UpstreamFormat, before: TableSchema, after: TableSchema) -> str | None:
    """The reason why records of the upstream can't have a table after changes."""
    for column in widened(before, after):
        if not isinstance(upstream, RegistryFormat):
            return f"{column.name} widened, and records of format {upstream.form!r} have its type for good"
        if column.type.name is TypeName.DOUBLE and not upstream.framed.value:
            return f"{column.name} widened: as a double, the text of a float is another number"
    return upstream.incompatibility_as_upstream(after)


def version_in(config: ServiceConfig, storage: Storage, changes: Sequence[TableChange] = ()) -> BoundTable:
    """`version_of` the state in a folder, whose journal is there; of changes, the registry of outputs is asked, too."""
    entry, refuse = Journal(storage, config.table).current, None
    if changes:
        # Commands that look at the table alone do without the client's packages.
        from streaming.registry.outputs import refusal_of_wider

        refuse = refusal_of_wider(config.registry, entry)
    return version_of(config, entry, changes, state=storage.root, refuse=refuse)


def changes_of(plan: BatchPlan) -> Iterator[tuple[int, tuple[TableChange, ...]]]:
    """The epochs of a plan's barriers that ask for changes, with these."""
    for aligned in plan.barriers:
        if isinstance(mutation := aligned.barrier.mutation, Alter):
            yield aligned.epoch, changes_from_json(json.loads(mutation.changes))


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
