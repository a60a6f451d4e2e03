"""Checks of the state: its folder, tables and owner, what it was made of, and its jobs against the configured ones."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from schemas.errors import Code, ConfigError, StateError
from schemas.job import JobDefinition
from schemas.kinds.lanes import rescale_incompatibility
from schemas.settings.config import ServiceConfig
from schemas.table import TableSchema
from state.small_files import is_recent, last_seen_ms
from state.storage import Storage
from state.values.progress import is_complete
from streaming.protocol.recovery.steps import out_of_step
from streaming.service.checks.machine import existing
from streaming.service.checks.surroundings import Finding, Surroundings
from streaming.service.presence import Presence, instance_name
from streaming.source.upstream_checks import refuse_foreign, refuse_partial

if TYPE_CHECKING:  # `doctor` needs none of what runs batches
    from streaming.protocol.batches import Batches

log = structlog.get_logger(__name__)


def folder(found: Surroundings) -> Iterator[Finding]:
    """Check that it can be written, without making it. Raises: StateError(STATE_PATH_INVALID)."""
    storage, root = found.storage, Path(found.declared.state)
    if not storage.is_store and not root.exists():
        above = existing(root)
        if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
            raise StateError(
                Code.STATE_PATH_INVALID, where=str(root), found=f"a path that can't be made in {above}"
            )
        yield Finding.ok("state", f"{root}, made at the first start")
        return
    try:
        storage.prepare()
        is_new = storage.is_store and not storage.exists()
    except (OSError, ValueError) as error:
        # Its message may quote credentials of the URI.
        raise StateError(
            Code.STATE_PATH_INVALID,
            where="state",
            found=f"a store that does not answer ({type(error).__name__})",
            next_step="look at the address, the credentials and the network",
        ) from None
    shown = "the store answers" if storage.is_store else str(root)
    yield Finding.ok("state", shown + ("; made at the first start" if is_new else ""))


def tables(found: Surroundings) -> Iterator[Finding]:
    """Check that all are there. Raises: StateError(STATE_TABLE_CORRUPT)."""
    if found.repairs:
        set_torn_aside(found.storage)
    refuse_partial(found.storage, found.entry)
    if found.entry is None:
        yield Finding.ok("tables", "none yet: a new state")
    else:
        yield Finding.ok("tables", "all there")


def set_torn_aside(storage: Storage) -> None:
    """Rename what a power failure tore, and log it. For a start alone."""
    for torn in storage.set_torn_aside():
        log.warning(
            "set_torn_aside", path=torn, reason="not synced before a power failure; nothing relied on it"
        )


def owner(found: Surroundings) -> Iterator[Finding]:
    """Another instance that lives, from which a start takes the state over."""
    if found.entry is None:
        return
    presence, name = Presence(found.storage), found.entry.owner
    if not is_recent(last_seen_ms(found.storage, name)):
        yield Finding.ok("owner", f"{name}, which has ended")
    elif presence.is_fenced_by(instance_name(), name):
        step = "a start here waits until that one has ended; --take-over takes the state back"
        yield Finding.warning("owner", f"{name}, which runs, and took over from this instance", step)
    else:
        step = "a start takes the state over, and that one ends; stop it first if it isn't to be replaced"
        yield Finding.warning("owner", f"{name}, which runs", step)


def binding(found: Surroundings) -> Iterator[Finding]:
    """Check that the state is of this table and topic.

    Raises: StateError(STATE_FOREIGN, SCHEMA_CHANGED, VNODE_LAYOUT_CHANGED, PK_CHANGED, COLUMN_WAS_IGNORED);
    TopicError(TOPIC_REPLACED, PARTITIONS_CHANGED).
    """
    found.settle()
    if found.entry is None:
        return
    has_plan = found.entry.plan is not None
    refuse_foreign(found.entry.table, found.upstream, state=found.storage.root, has_plan=has_plan)
    more = [name for name in found.config.table.column_names if name not in found.declared.table.by_name]
    if more:
        text = f"a table with columns that the file lacks: {', '.join(more)}"
        yield Finding.warning("binding", text, "nothing, they stay; to see them in the file write them there")
    else:
        yield Finding.ok("binding", f"a state of {found.upstream.topic}, with the table as it is declared")


def start(found: Surroundings) -> Iterator[Finding]:
    """Check where the table starts, and that a lost state can be made anew.

    Raises: StateError(INITIAL_CHANGED, OUTPUT_OUT_OF_STEP); ConfigError for an incompatible Delta table, and
    offsets that are not the topic's.
    """
    config = found.config
    if found.rebuild and config.initial_postgres is not None:
        raise out_of_step(
            "outputs of a lost state, and a table that starts from PostgreSQL",
            "a table that can be read again as of the time at which it was: only a new state, and new outputs",
            found.storage.root,
        )
    at, _ = found.start or config.initial_postgres, found.beginning
    if at is not None:
        yield Finding.ok("initial", str(at))


def jobs(found: Surroundings) -> Iterator[Finding]:
    """Check those of the configuration against those of the state.

    Raises: ConfigError(JOB_CHANGED, RESCALE_REFUSED, NO_JOB).
    """
    config, outcome, partitions = found.config, found.known, found.upstream.partitions
    known = [job.definition for job in outcome.jobs]
    configured = [job.with_partitions(partitions) for job in config.jobs]
    refuse_changed_jobs(known, configured, () if found.version is None else found.version.widths)
    # The progress, which decides about no-shuffle backfills, is looked at once the state is this instance's.
    every = [(job, True) for job in (*known, *configured)]
    lanes, is_set = outcome.lanes or config.lanes, outcome.lanes is not None
    refuse_rescale(every, (), lanes, config.table, partitions, is_set=is_set)
    if found.exit_when_complete:
        refuse_nothing_to_do(known, configured)
    if known:
        yield Finding.ok("jobs", f"{len(known)} in the state, none declared otherwise")


def refuse_changed_jobs(
    known: Iterable[JobDefinition], configured: Iterable[JobDefinition], table_widths: Collection[int]
) -> None:
    """Raises: ConfigError(JOB_CHANGED) if a configured job differs from the known one of its name."""
    by_name = {job.name: job for job in known}
    for job in configured:
        differences = by_name[job.name].differences(job, table_widths) if job.name in by_name else []
        if differences:
            raise ConfigError(Code.JOB_CHANGED, where=f"job {job.name}", found="; ".join(differences))


def refuse_rescale(
    known: Iterable[tuple[JobDefinition, bool]],
    configured: Iterable[JobDefinition],
    lanes: int,
    table: TableSchema,
    partitions: int,
    *,
    is_set: bool = False,
) -> None:
    """Raises: ConfigError(RESCALE_REFUSED) for lanes with which a job can't run, see `rescale_incompatibility`.

    `known` jobs are with True once they are read to their end; `is_set`: a `Lanes` has set the number.
    """
    jobs = list(known)
    names = {job.name for job, _ in jobs}
    jobs += [(job, False) for job in configured if job.name not in names]
    reason = rescale_incompatibility(lanes, jobs, table, partitions)
    if reason is not None:
        found = (
            f"{reason}; `backfill lanes` has set the number, before `lanes` of the file" if is_set else reason
        )
        step = "take the new job out of the file, start, and give `backfill lanes` and `backfill create`"
        raise ConfigError(
            Code.RESCALE_REFUSED, where="lanes", found=found, next_step=step if is_set else None
        )


def check_jobs(batches: Batches, config: ServiceConfig, table_widths: Collection[int]) -> None:
    """Check the jobs that the state knows against the configuration's. Raises: ConfigError."""
    partitions = len(batches.next_offsets())
    known = [job.definition for job in batches.jobs]
    configured = [job.with_partitions(partitions) for job in config.jobs]
    refuse_changed_jobs(known, configured, table_widths)
    read = [(job, is_complete(batches.progress.get(job.name, {}), job.part_count)) for job in known]
    # A new job that a `Lanes` leaves no room for was refused by the start of the process, or is by its first batch.
    new = () if batches.state.lanes_set else configured
    refuse_rescale(read, new, batches.state.lanes, config.table, partitions)


def are_complete(batches: Batches) -> bool:
    """True if every job has read its snapshot to the end, and none is still to be added."""
    return (
        bool(batches.jobs)
        and not batches.state.configured
        and all(
            job.opened and is_complete(batches.progress.get(job.name, {}), job.definition.part_count)
            for job in batches.jobs
        )
    )


def refuse_nothing_to_do(known: Sequence[JobDefinition], configured: Sequence[JobDefinition]) -> None:
    """For `--exit-when-complete`, which needs a job. Raises: ConfigError(NO_JOB)."""
    if not known and not configured:
        raise ConfigError(Code.NO_JOB, found="no job in the configuration or the state")
