"""Maintenance of the replica: the compaction as a strand beside the batches, computed the slow and obvious way.

The base is the upstream's own table as of the barrier, which the judge compares the log with; so what is simulated
is when a compaction is committed and its log files trimmed, and not how it is computed
(`state.maintenance.compaction`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import CommitConflict
from schemas.position import Key, order_key
from schemas.records import Op, Row
from schemas.table import TableSchema
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, base_schema, log_schema
from state.replica import BASE_PATH, LOG_PATH, Replica, ReplicaFiles, write_log_file
from state.storage import DataFile
from tests.simulation.storage import Files, with_columns

if TYPE_CHECKING:
    from tests.simulation.instance import Instance

ROWS_PER_FILE = 3


def rows_of(files: ReplicaFiles, memory: Files, table: TableSchema, *, upto: int) -> dict[Key, Row]:
    """The table's rows as of a barrier, by base and log."""
    rows: dict[Key, Row] = {}
    for file in (file for of_vnode in files.base.values() for file in of_vnode):
        content = with_columns(memory.contents[f"{BASE_PATH}/{file.path}"], base_schema(table), table.fills)
        content = content.select(list(table.column_names))
        for row in content.to_pylist():
            rows[table.key_of(tuple(row.values()))] = tuple(row.values())
    changes = [change for change in changes_of(files, memory, table) if change[EPOCH] <= upto]
    # Rows of a chunk come behind all changes of their keys that they hold.
    for change in sorted(changes, key=lambda change: (change[EPOCH], change[PARTITION], change[OFFSET])):
        row = tuple(change[name] for name in table.column_names)
        rows.pop(table.key_of(row), None)
        if change[OP] != Op.DELETE:
            rows[table.key_of(row)] = row
    return rows


def changes_of(files: ReplicaFiles, memory: Files, table: TableSchema) -> list[dict[str, Any]]:
    """The log's changes behind the base."""
    behind = pc.field(EPOCH) > files.compacted_epoch
    contents = (memory.contents[f"{LOG_PATH}/{file.path}"] for file in files.log)
    wide = (with_columns(content, log_schema(table), table.fills) for content in contents)
    return [change for content in wide for change in content.filter(behind).to_pylist()]


class Compactor:
    """In the place of `streaming.compaction.compactor.Compactor`, with the same commits at the same moments."""

    def __init__(self, instance: Instance, replica: Replica) -> None:
        self._instance, self._replica = instance, replica
        self._running = self._done = False
        self._compacting_to = 0

    def batch_begins(self) -> None:
        """When work goes on is the scheduler's to choose."""

    def between_batches(self, epoch: int, *, wait_for_compaction: bool) -> None:
        self.collect()
        if not self._instance.compactions or not self._instance.table.has_key:
            return
        with self._refused():
            self._do(epoch)

    def _do(self, epoch: int) -> None:
        choices = ("nothing", "merge") if self._running else ("nothing", "compact", "merge")
        match self._instance.scheduler.outcome("maintenance", *choices):
            case "compact":
                self._running = True
                self._compacting_to = epoch
                files = self._replica.files(self._replica.pin())
                self._instance.scheduler.spawn(
                    self._instance.process, "compact", lambda: self._compact(epoch, files)
                )
            case "merge":
                self._merge()

    def collect(self) -> None:
        """Use the result of a compaction from here on."""
        if self._done:
            self._running = self._done = False
            self._compacting_to = 0
            with self._refused():
                if self._replica.commit_compaction(*self._made, read_at=self._read_at):
                    self._replica.trim()

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except CommitConflict:
            self._replica.reload()

    def _compact(self, epoch: int, old: ReplicaFiles) -> None:
        table = self._instance.table
        by_vnode: dict[int, list[Row]] = {}
        changelog = self._instance.arrivals.changelog
        rows = changelog.rows_at(epoch)
        if changelog.timeline is not None:  # the table may be read in part only
            rows = rows_of(old, self._instance.storage.memory, table, upto=epoch)
        for row in sorted(rows.values(), key=lambda row: order_key(table.key_of(row))):
            by_vnode.setdefault(changelog.vnode_of(table.key_of(row)), []).append(row)
        added = [
            self._write(vnode, part[start : start + ROWS_PER_FILE])
            for vnode, part in by_vnode.items()
            for start in range(0, len(part), ROWS_PER_FILE)
        ]
        self._read_at = old.compacted_epoch
        self._made = added, [file for files in old.base.values() for file in files], epoch
        self._done = True

    def _write(self, vnode: int, rows: list[Row]) -> DataFile:
        table = self._instance.table
        schema = pa.schema([(column.name, column.type.arrow) for column in table.columns])
        named = [dict(zip(table.column_names, row, strict=False)) for row in rows]
        file = self._instance.storage.write_parquet(
            BASE_PATH, pa.Table.from_pylist(named, schema=schema), stem=f"v{vnode}"
        )
        return replace(file, partition={VNODE: str(vnode)})

    def _merge(self) -> None:
        storage, log, table = self._instance.storage, self._replica.log, self._instance.table
        """Beside a compaction only what begins behind it."""
        every = self._replica.files(self._replica.pin()).log
        files = [file for file in every if file.bounds[EPOCH][0] > self._compacting_to]
        if len(files) > 2:  # a large one stays alone, as ever: what is merged has a gap in the order of time
            files.remove(max(files, key=lambda file: file.rows))
        if len(files) > 1:
            rows = storage.read_parquet(
                LOG_PATH, [file.path for file in files], log.schema, fills=table.fills
            )
            rows = rows.sort_by([(VNODE, "ascending"), (OFFSET, "ascending")])
            merged = write_log_file(storage, rows, "merged")
            self._replica.replace_log_files(files, merged)
