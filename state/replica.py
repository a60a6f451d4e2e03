"""The replica of the upstream table: `base` and `log`, two ordinary Delta tables.

    base   the table as of the barrier `folded_epoch`: partitioned by vnode, files sorted by primary key, the files
           of one vnode disjoint in key. Written by the fold alone.
    log    every change after that barrier (older ones may still be there): append-only, one commit a batch.

The table at barrier b is base ⊕ log up to b. A plan pins a version of both; all files of a version are
immutable, so readers are given paths and never look at "latest".

Only the driver's batch thread commits to the log. The fold runs beside it and commits to the base; trimming the
log afterwards is again the batch thread's work, between two batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from schemas.table import TableSchema
from state.columns import EPOCH, VNODE, base_schema, log_schema
from state.ledger import Ledger, open_or_create
from state.plan import ReplicaVersion
from state.storage import DataFile, Storage

BASE_PATH, LOG_PATH = "replica/base", "replica/log"
LOG_BOUNDS = (VNODE, EPOCH)


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A sorted file of one vnode. `path` is below the base's root."""

    path: str
    vnode: int
    rows: int
    size: int


@dataclass(frozen=True)
class ReplicaFiles:
    """The files of a pinned version: all that a reader of the snapshot needs, small enough to send to a lane."""

    folded_epoch: int
    base: Mapping[int, tuple[BaseFile, ...]]
    log: tuple[DataFile, ...]

    @property
    def base_rows(self) -> int:
        """Rows in the base, deleted ones of the log included."""
        return sum(file.rows for files in self.base.values() for file in files)

    @property
    def log_rows(self) -> int:
        """Changes in the log, several of one key included."""
        return sum(file.rows for file in self.log)

    @property
    def rows(self) -> int:
        """About what a whole snapshot reads."""
        return self.base_rows + self.log_rows

    def rows_by_vnode(self, vnode_count: int) -> dict[int, int]:
        """About what each vnode holds: its rows in the base or, before the first fold, its share of the log."""
        if not self.base:
            return dict.fromkeys(range(vnode_count), -(-self.log_rows // vnode_count))
        return {vnode: sum(file.rows for file in files) for vnode, files in self.base.items()}

    def of_vnodes(self, vnodes: frozenset[int]) -> ReplicaFiles:
        """Only what readers of these vnodes need."""
        base = {vnode: files for vnode, files in self.base.items() if vnode in vnodes}
        low, high = min(vnodes, default=0), max(vnodes, default=-1)
        log = tuple(file for file in self.log if _overlaps(file, low, high))
        return ReplicaFiles(self.folded_epoch, base, log)


def _overlaps(file: DataFile, low: int, high: int) -> bool:
    bounds = file.bounds.get(VNODE)
    return bounds is None or (bounds[0] <= high and bounds[1] >= low)


class Replica:
    """The writer's handle. Opening creates both tables if they are not there."""

    def __init__(self, storage: Storage, table: TableSchema) -> None:
        self.storage, self.table = storage, table
        self.log = Ledger(storage, LOG_PATH, log_schema(table))
        self._base = _open_base(storage, base_schema(table))
        self._fold_id = f"fold-{self._base.metadata().id}"
        self._cached: tuple[ReplicaVersion, ReplicaFiles] | None = None

    @property
    def fold_id(self) -> str:
        """`txnAppId` of the fold's commits; their `txnVersion` is the folded epoch."""
        return self._fold_id

    @property
    def id(self) -> str:
        """The id that the log got when it was created: this state and no other."""
        return self.log.id

    @property
    def log_epoch(self) -> int:
        """The barrier up to which the log is complete."""
        return self.log.epoch

    def pin(self) -> ReplicaVersion:
        """The newest version of both tables, the base's as of the last fold that was noticed."""
        return ReplicaVersion(int(self._base.version()), self.log.version, self.folded_epoch)

    @property
    def folded_epoch(self) -> int:
        """The barrier that the base is complete up to; 0 before the first fold."""
        return self._base.transaction_version(self._fold_id) or 0

    def notice_fold(self) -> bool:
        """Look for a newer base. True if there is one; plans made from now on use it."""
        before = self._base.version()
        self._base.update_incremental()
        return bool(self._base.version() != before)

    def files(self, version: ReplicaVersion) -> ReplicaFiles:
        """The files of a pinned version; the last answer is kept, for a version never changes."""
        if self._cached is not None and self._cached[0] == version:
            return self._cached[1]
        previous = self._cached
        base = (
            previous[1].base
            if previous is not None and previous[0].base == version.base
            else _base_files(self.storage.delta(BASE_PATH, version=version.base))
        )
        files = ReplicaFiles(version.folded_epoch, base, self._log_files(version))
        self._cached = (version, files)
        return files

    def _log_files(self, version: ReplicaVersion) -> tuple[DataFile, ...]:
        if version.log == self.log.version:
            files = self.log.files(LOG_BOUNDS)
        else:
            files = self.log.files_at(version.log, LOG_BOUNDS)
        return tuple(file for file in files if file.bounds[EPOCH][1] > version.folded_epoch)

    def reload(self) -> None:
        """See what others committed. The log first: it is never seen trimmed beyond what the base has folded."""
        self.log.reload()
        self.notice_fold()

    def append(self, files: Sequence[DataFile], epoch: int) -> None:
        """Commit the changes of a batch that ends with barrier `epoch`. Does nothing if they are there already.

        Raises: CommitConflict when somebody else committed to the log.
        """
        if epoch > self.log_epoch:
            self.log.commit([file for file in files if file.rows], epoch=epoch)

    def trim(self) -> int:
        """Take log files out that the base has folded. Returns how many. Only between two batches."""
        folded = [file for file in self.log.files(LOG_BOUNDS) if file.bounds[EPOCH][1] <= self.folded_epoch]
        if folded:
            self.log.commit([], folded, epoch=None)
        return len(folded)

    def replace_log_files(self, merged: Sequence[DataFile], by: DataFile) -> None:
        """Swap small log files for one with the same rows. Only between two batches."""
        self.log.commit([by], merged, epoch=None, data_change=False)


def _open_base(storage: Storage, schema: pa.Schema) -> DeltaTable:
    configuration = {
        "delta.deletedFileRetentionDuration": "interval 1 hours",
        "delta.enableDeletionVectors": "false",  # readers are given plain files
    }
    return open_or_create(storage, BASE_PATH, schema, configuration=configuration, partition_by=[VNODE])


def _base_files(table: DeltaTable) -> dict[int, tuple[BaseFile, ...]]:
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = (
        actions[name].to_pylist() for name in ("path", f"partition.{VNODE}", "num_records", "size_bytes")
    )
    by_vnode: dict[int, list[BaseFile]] = {}
    for path, vnode, rows, size in zip(*columns, strict=True):
        by_vnode.setdefault(int(vnode), []).append(BaseFile(path, int(vnode), rows, size))
    return {vnode: tuple(files) for vnode, files in by_vnode.items()}
