"""State of a start from a database until it is over: rows of chunks, and events that wait for theirs.

    initial/chunks     files of rows, by vnode; they belong to a chunk once a plan in the journal names them
    initial/waiting    a Delta table of events (`state.columns.waiting_schema`)

Batches add their events. A batch that releases chunks reads all waiting events, and writes those that go on waiting
anew. Each commit carries the epoch of its batch, as those of the log do.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from schemas.avro.chunks import rows_within
from schemas.table import TableSchema
from state.columns import OFFSET, PARTITION, VNODE, base_schema, waiting_schema, within_vnodes
from state.ledger import Ledger
from state.replica import BYTES_PER_GROUP, ROWS_PER_GROUP
from state.storage import DataFile, Storage
from state.values.arrays import arrays
from state.vnode import row_hashes

CHUNKS_PATH, WAITING_PATH = "initial/chunks", "initial/waiting"


def stage(storage: Storage, table: TableSchema, rows: pa.Table) -> str:
    """Write rows of a chunk, the table's columns, to a file; returns its path. May be called by any thread.

    The file is on the disk when this returns. It counts once a plan in the journal names it; a crash before that leaves
    it behind as garbage.
    """
    vnodes = vnodes_of(rows, table)
    names = list(table.column_names)
    placed = pa.table([vnodes, *(rows[name] for name in names)], names=[VNODE, *names])
    placed = placed.cast(base_schema(table)).sort_by(VNODE)
    storage.filesystem.create_dir(storage.path(CHUNKS_PATH), recursive=True)
    file = storage.write_parquet(
        CHUNKS_PATH,
        placed,
        stem="chunk",
        bound_columns=(VNODE,),
        row_group_rows=rows_within(placed.num_rows, placed.nbytes, ROWS_PER_GROUP, BYTES_PER_GROUP),
    )
    for folder in ((CHUNKS_PATH,), ("initial",), ()):
        storage.sync(*folder)
    return file.path


def vnodes_of(rows: pa.Table, table: TableSchema) -> pa.Array:
    """The vnode of each row, as the replica's tables have it."""
    hashes = row_hashes(arrays(rows, table.distribution_key), table.select(table.distribution_key))
    return pa.array(hashes % table.vnode_count, pa.int32())


def staged_rows(storage: Storage, table: TableSchema, files: Sequence[str], vnodes: range) -> pa.Table:
    """The rows of some files that are of these vnodes, with their vnodes (`base_schema`).

    Raises: StateError(STATE_TABLE_CORRUPT) when a file is gone.
    """
    return storage.read_parquet(CHUNKS_PATH, list(files), base_schema(table), wanted=within_vnodes(vnodes))


def waiting_rows(storage: Storage, table: TableSchema, files: Sequence[DataFile], vnodes: range) -> pa.Table:
    """The events of some files that are of these vnodes, in the order of each key. Raises: as `staged_rows`."""
    paths = [file.path for file in files]
    found = storage.read_parquet(WAITING_PATH, paths, waiting_schema(table), wanted=within_vnodes(vnodes))
    return found.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])


def write_waiting(storage: Storage, rows: pa.Table, stem: str) -> DataFile:
    """Write events as a file of `initial/waiting`; it belongs to the table once it is committed."""
    return storage.write_parquet(
        WAITING_PATH,
        rows,
        stem=stem,
        bound_columns=(VNODE,),
        row_group_rows=rows_within(rows.num_rows, rows.nbytes, ROWS_PER_GROUP, BYTES_PER_GROUP),
    )


class WaitingEvents:
    """The writer's handle of the events that wait. Opening creates the table if it is not there."""

    def __init__(self, storage: Storage, table: TableSchema) -> None:
        self._ledger = Ledger(storage, WAITING_PATH, waiting_schema(table))

    @property
    def version(self) -> int:
        """The version that a plan pins. Read it between two batches."""
        return self._ledger.version

    @property
    def epoch(self) -> int:
        """The barrier of the last batch that has changed it."""
        return self._ledger.epoch

    def files(self, version: int) -> list[DataFile]:
        """The files of a pinned version, which may come from an earlier process."""
        return self._ledger.files(version=version)

    def commit(self, added: Sequence[DataFile], epoch: int, *, version: int, anew: bool) -> None:
        """Add the events of a batch that was planned at `version`; `anew`: in place of all earlier ones.

        Does nothing if the batch is committed already. Raises: CommitConflict when another writer committed.
        """
        added = [file for file in added if file.rows]
        if epoch <= self.epoch:
            return
        removed = self.files(version) if anew else []
        if added or removed:
            self._ledger.commit(added, removed, epoch=epoch)

    def commit_part(self, added: Sequence[DataFile], records: int) -> None:
        """Add the events of a part of an interval that is not over; `records` is `BatchPlan.end_records`."""
        added = [file for file in added if file.rows]
        if added and records > self._ledger.records:
            self._ledger.commit(added, epoch=None, records=records)

    def reload(self) -> None:
        """Move to the newest version."""
        self._ledger.reload()
