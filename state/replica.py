"""The replica of the upstream table: `base` and `log`, two ordinary Delta tables.

    base   the table as of the barrier `compacted_epoch`: partitioned by vnode, files sorted by primary key, the files
           of one vnode disjoint in key. Written by the compaction alone.
    log    every change after that barrier (older ones may still be there): append-only, one commit a batch.

The table at barrier b is base ⊕ log up to b. A plan pins a version of both; all files of a version are
immutable, so readers are given paths and never use "latest".

Only the driver's batch thread commits. The compaction runs in parallel and writes files; they are committed to the
base, and the compacted files removed from the log, between two batches.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from schemas.avro.chunks import rows_within
from schemas.table import TableSchema
from state.columns import EPOCH, VNODE, base_schema, log_schema
from state.ledger import Ledger
from state.storage import DataFile, Storage
from state.values.aligned import ReplicaVersion
from state.values.plan import BatchPlan
from state.values.seen import Marks, marks_from_dict, marks_to_dict

BASE_PATH, LOG_PATH = "replica/base", "replica/log"
LOG_BOUNDS = (VNODE, EPOCH)
ROWS_PER_GROUP = 16_384
"""Rows of a Parquet row group, which a reader can skip."""
BYTES_PER_GROUP = 2 << 20
"""Arrow bytes of a row group, about: a reader of any row holds all of it."""
_RAW_BYTES = re.compile(r"-([0-9]{1,18})b-[^/]*$")
_LIKELY_EXPANSION = 4
"""Arrow bytes per byte of a Parquet file without them in its name, as former versions wrote."""


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A sorted file of one vnode. `path` is below the base's root."""

    path: str
    vnode: int
    rows: int
    size: int


def raw_bytes(file: BaseFile | DataFile) -> int:
    """Bytes that the rows of a file of the replica take as Arrow columns: from its name, or else an estimate.

    Compressed sizes are no measure: fifty kilobytes of one letter are some bytes on disk.
    """
    named = _RAW_BYTES.search(file.path)
    return int(named[1]) if named else file.size * _LIKELY_EXPANSION


@dataclass(frozen=True)
class ReplicaFiles:
    """The files of a pinned version: all that a reader of the snapshot needs, small enough to send to a lane."""

    compacted_epoch: int
    base: Mapping[int, tuple[BaseFile, ...]]
    log: tuple[DataFile, ...]

    @cached_property
    def base_rows(self) -> int:
        """Rows in the base, those that the log deletes included."""
        return sum(file.rows for files in self.base.values() for file in files)

    @cached_property
    def log_rows(self) -> int:
        """Changes in the log, several of one key included."""
        return sum(file.rows for file in self.log)

    @cached_property
    def base_bytes(self) -> int:
        """Bytes that the base takes as Arrow columns."""
        return sum(raw_bytes(file) for files in self.base.values() for file in files)

    @cached_property
    def log_bytes(self) -> int:
        """Bytes that the log takes as Arrow columns."""
        return sum(map(raw_bytes, self.log))

    def log_bytes_of(self, vnodes: frozenset[int]) -> int:
        """An estimate of the bytes of some vnodes' changes: their share of the vnodes between each file's bounds."""
        ordered = sorted(vnodes)
        return sum(int(raw_bytes(file) * _share(file, ordered)) for file in self.log)

    @property
    def rows(self) -> int:
        """An estimate of the rows that a whole snapshot reads."""
        return self.base_rows + self.log_rows

    def rows_by_vnode(self, vnode_count: int) -> dict[int, int]:
        """About how many rows each vnode holds: those in the base or, before the first compaction, its log share."""
        if not self.base:
            return dict.fromkeys(range(vnode_count), -(-self.log_rows // vnode_count))
        return {vnode: sum(file.rows for file in files) for vnode, files in self.base.items()}

    def of_vnodes(self, vnodes: Collection[int]) -> ReplicaFiles:
        """The files that readers of these vnodes need: of the log those whose bounds hold at least one of them."""
        ordered = sorted(vnodes)
        base = {vnode: self.base[vnode] for vnode in ordered if vnode in self.base}
        return replace(self, base=base, log=tuple(file for file in self.log if _holds(file, ordered)))

    def since(self, epoch: int) -> ReplicaFiles | None:
        """The log behind a barrier, as a version of its own; None where it no longer holds all of that.

        Its `compacted_epoch` is the barrier: a merged file may hold rows on both sides of it, without those that were
        newest there, which are in other files.
        """
        if epoch < self.compacted_epoch:
            return None
        return ReplicaFiles(epoch, {}, tuple(file for file in self.log if file.bounds[EPOCH][1] > epoch))


def _holds(file: DataFile, vnodes: Sequence[int]) -> bool:
    """True if the file may hold rows of one of these vnodes, which are in order."""
    bounds = file.bounds.get(VNODE)
    if bounds is None:
        return bool(vnodes)
    first = bisect_left(vnodes, bounds[0])
    return first < len(vnodes) and vnodes[first] <= bounds[1]


def _share(file: DataFile, vnodes: Sequence[int]) -> float:
    """The share of some vnodes, in order, among those that a file of the log may hold."""
    bounds = file.bounds.get(VNODE)
    if bounds is None:
        return 1.0
    low, high = bounds
    within = bisect_right(vnodes, high) - bisect_left(vnodes, low)
    return within / int(high - low + 1)


class Replica:
    """The writer's handle. Opening creates both tables if they are not there."""

    def __init__(self, storage: Storage, table: TableSchema) -> None:
        self.storage, self.table = storage, table
        self.log = Ledger(storage, LOG_PATH, log_schema(table))
        self.base = Ledger(
            storage,
            BASE_PATH,
            base_schema(table),
            partition_by=[VNODE],
            checkpoint_commits=storage.retention.base_checkpoint_commits,
        )
        self._cached: tuple[ReplicaVersion, ReplicaFiles] | None = None

    def adopt_schema(self) -> None:
        """Take the table's new columns and types into both tables; see `Ledger`. Rows that are there stay as they are.

        Only the owner may call it, behind the fences. Raises: CommitConflict.
        """
        self.log.adopt_schema()
        self.base.adopt_schema()

    @property
    def id(self) -> str:
        """The id that the log got when it was created: this state and no other."""
        return self.log.id

    @property
    def log_epoch(self) -> int:
        """The barrier up to which the log is complete."""
        return self.log.epoch

    def pin(self) -> ReplicaVersion:
        """The newest version of both tables that this writer has seen."""
        return ReplicaVersion(self.base.version, self.log.version, self.compacted_epoch)

    @property
    def compacted_epoch(self) -> int:
        """The barrier that the base is complete up to; 0 before the first compaction."""
        return self.base.epoch

    def commit_compaction(
        self,
        added: Sequence[DataFile],
        removed: Sequence[BaseFile],
        epoch: int,
        *,
        read_at: int | None = None,
    ) -> bool:
        """Swap the files of the compacted vnodes; returns False if there was nothing to do. Only between two batches.

        `removed` are all base files of these vnodes that the compaction has read, at the version of the base that was
        complete up to barrier `read_at`; the base is then complete up to `epoch`. Does nothing if it is already, or if
        another compaction came in between: one of the instance before, seen by a `reload`.
        Raises: CommitConflict when another writer committed to the base.
        """
        is_due = epoch > self.compacted_epoch and read_at in (None, self.compacted_epoch)
        if is_due:
            committed = [
                DataFile(each.path, each.size, each.rows, partition={VNODE: str(each.vnode)})
                for each in removed
            ]
            self.base.commit(added, committed, epoch=epoch)
        return is_due

    def files(self, version: ReplicaVersion) -> ReplicaFiles:
        """The files of a pinned version; the last answer is kept, for a version never changes."""
        if self._cached is not None and self._cached[0] == version:
            return self._cached[1]
        base: Mapping[int, tuple[BaseFile, ...]]
        if self._cached is not None and self._cached[0].base == version.base:
            base = self._cached[1].base
        else:
            base = _by_vnode(self.base.files(version=version.base))
        log = self.log.files(LOG_BOUNDS, version=version.log)
        behind = tuple(file for file in log if file.bounds[EPOCH][1] > version.compacted_epoch)
        files = ReplicaFiles(version.compacted_epoch, base, behind)
        self._cached = (version, files)
        return files

    def reload(self) -> None:
        """Move to the newest versions. The log first: it is never seen trimmed beyond what the base has compacted."""
        self.log.reload()
        self.base.reload()

    @property
    def seen(self) -> Marks | None:
        """Positions seen of the upstream up to the end of the log, if its records may be redelivered.

        None for a log that only former versions of the service, which did not commit them, have appended to.
        """
        return None if self.log.note is None else marks_from_dict(json.loads(self.log.note))

    def append(self, files: Sequence[DataFile], epoch: int, seen: Marks | None = None) -> None:
        """Commit the changes of a batch that ends with barrier `epoch`, and what was `seen` then (None: as before).

        Does nothing if they are there already. Raises: CommitConflict when another writer committed to the log.
        """
        if epoch > self.log_epoch:
            self.log.commit([file for file in files if file.rows], epoch=epoch, note=_note(seen))

    def append_part(self, files: Sequence[DataFile], records: int, seen: Marks | None = None) -> None:
        """Commit a part of the changes of an interval that is not over, as `append`.

        `records` is `BatchPlan.end_records`.
        """
        if records > self.log.records:
            added = [file for file in files if file.rows]
            self.log.commit(added, epoch=None, records=records, note=_note(seen))

    def holds(self, plan: BatchPlan) -> bool:
        """True if the log has the changes of a batch, or of a part of a long interval."""
        if plan.until is None:
            return self.log_epoch >= plan.epoch
        return self.log.records >= plan.end_records

    def trim(self) -> int:
        """Remove log files that the base has compacted; returns how many. Only between two batches."""
        compacted = [
            file for file in self.log.files(LOG_BOUNDS) if file.bounds[EPOCH][1] <= self.compacted_epoch
        ]
        if compacted:
            self.log.commit([], compacted, epoch=None)
        return len(compacted)

    def replace_log_files(self, merged: Sequence[DataFile], by: DataFile) -> None:
        """Swap small log files for one with the same rows. Only between two batches."""
        self.log.commit([by], merged, epoch=None, data_change=False)


def _note(seen: Marks | None) -> str | None:
    return None if seen is None else json.dumps(marks_to_dict(seen))


def _by_vnode(files: Sequence[DataFile]) -> dict[int, tuple[BaseFile, ...]]:
    by_vnode: dict[int, list[BaseFile]] = {}
    for file in files:
        vnode = int(file.partition[VNODE])
        by_vnode.setdefault(vnode, []).append(BaseFile(file.path, vnode, file.rows, file.size))
    return {vnode: tuple(found) for vnode, found in by_vnode.items()}


def write_log_file(storage: Storage, rows: pa.Table, stem: str) -> DataFile:
    """Write rows of `log_schema` as a file of the log, with bounds by which readers skip it.

    It belongs to the log once it is committed (`Replica.append`, `replace_log_files`).
    """
    return write_replica_file(storage, LOG_PATH, rows, stem, bound_columns=LOG_BOUNDS)


def write_replica_file(
    storage: Storage, path: str, rows: pa.Table, stem: str, *, bound_columns: tuple[str, ...] = ()
) -> DataFile:
    """Write rows as one file of base or log; the file is built in memory, so give it some megabytes at a time.

    Its name holds their bytes in memory, which also decide its row groups.
    """
    size = rows.nbytes
    return storage.write_parquet(
        path,
        rows,
        stem=f"{stem}-{size}b",
        bound_columns=bound_columns,
        row_group_rows=rows_within(rows.num_rows, size, ROWS_PER_GROUP, BYTES_PER_GROUP),
    )


def write_log_parts(
    storage: Storage,
    table: TableSchema,
    parts: Iterable[pa.Table],
    of: Sequence[DataFile],
    stem: str,
) -> DataFile:
    """Write the rows of the files `of` as one file of the log, as `write_log_file` does, with one part in memory."""
    size = sum(map(raw_bytes, of))
    bounds = {
        name: (min(file.bounds[name][0] for file in of), max(file.bounds[name][1] for file in of))
        for name in LOG_BOUNDS
    }
    return storage.write_parquet_parts(
        LOG_PATH,
        parts,
        log_schema(table),
        stem=f"{stem}-{size}b",
        bounds=bounds,
        row_group_rows=rows_within(sum(file.rows for file in of), size, ROWS_PER_GROUP, BYTES_PER_GROUP),
    )
