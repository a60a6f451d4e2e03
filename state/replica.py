"""The replica of the upstream table: `base` and `log`, two ordinary Delta tables.

    base   the table as of the barrier `folded_epoch`: partitioned by vnode, files sorted by primary key, the files
           of one vnode disjoint in key. Written by the fold alone.
    log    every change after that barrier (older ones may still be there): append-only, one commit a batch.

The table at barrier b is base ⊕ log up to b. A plan pins a version of both; all files of a version are
immutable, so readers are given paths and never look at "latest".

Only the driver's batch thread commits. The fold runs beside it and writes files; what it has made goes into the base,
and out of the log, between two batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.table import TableSchema
from state.columns import EPOCH, VNODE, base_schema, log_schema
from state.ledger import Ledger
from state.plan import ReplicaVersion
from state.storage import DataFile, Storage

BASE_PATH, LOG_PATH = "replica/base", "replica/log"
LOG_BOUNDS = (VNODE, EPOCH)
_LOG_ROWS_PER_GROUP = 16_384


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
        self.base = Ledger(storage, BASE_PATH, base_schema(table), partition_by=[VNODE])
        self._cached: tuple[ReplicaVersion, ReplicaFiles] | None = None

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
        return ReplicaVersion(self.base.version, self.log.version, self.folded_epoch)

    @property
    def folded_epoch(self) -> int:
        """The barrier that the base is complete up to; 0 before the first fold."""
        return self.base.epoch

    def commit_fold(self, added: Sequence[DataFile], removed: Sequence[BaseFile], epoch: int) -> None:
        """Swap the files of the vnodes that were folded. Only between two batches; does nothing where it is done.

        `removed` are all base files of these vnodes that the fold has read; the base is then complete up to `epoch`.
        Raises: CommitConflict when somebody else committed to the base.
        """
        if epoch > self.folded_epoch:
            self.base.commit(added, [_as_committed(file) for file in removed], epoch=epoch)

    def files(self, version: ReplicaVersion) -> ReplicaFiles:
        """The files of a pinned version; the last answer is kept, for a version never changes."""
        if self._cached is not None and self._cached[0] == version:
            return self._cached[1]
        previous = self._cached
        base = (
            previous[1].base
            if previous is not None and previous[0].base == version.base
            else self._base_files(version)
        )
        files = ReplicaFiles(version.folded_epoch, base, self._log_files(version))
        self._cached = (version, files)
        return files

    def _base_files(self, version: ReplicaVersion) -> dict[int, tuple[BaseFile, ...]]:
        base = self.base
        return _by_vnode(base.files() if version.base == base.version else base.files_at(version.base))

    def _log_files(self, version: ReplicaVersion) -> tuple[DataFile, ...]:
        if version.log == self.log.version:
            files = self.log.files(LOG_BOUNDS)
        else:
            files = self.log.files_at(version.log, LOG_BOUNDS)
        return tuple(file for file in files if file.bounds[EPOCH][1] > version.folded_epoch)

    def reload(self) -> None:
        """See what others committed. The log first: it is never seen trimmed beyond what the base has folded."""
        self.log.reload()
        self.base.reload()

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


def _by_vnode(files: Sequence[DataFile]) -> dict[int, tuple[BaseFile, ...]]:
    by_vnode: dict[int, list[BaseFile]] = {}
    for file in files:
        vnode = int(file.partition[VNODE])
        by_vnode.setdefault(vnode, []).append(BaseFile(file.path, vnode, file.rows, file.size))
    return {vnode: tuple(found) for vnode, found in by_vnode.items()}


def _as_committed(file: BaseFile) -> DataFile:
    """A file of the base as its Delta table has it."""
    return DataFile(file.path, file.size, file.rows, partition={VNODE: str(file.vnode)})


def write_log_file(storage: Storage, rows: pa.Table, stem: str) -> DataFile:
    """Write rows of `log_schema` as a file of the log, whose bounds tell readers whether they need it.

    It belongs to the log once it is committed (`Replica.append`, `replace_log_files`).
    """
    return storage.write_parquet(
        LOG_PATH, rows, stem=stem, bound_columns=LOG_BOUNDS, row_group_rows=_LOG_ROWS_PER_GROUP
    )
