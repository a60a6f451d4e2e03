"""A Delta table with one writer at a time: every commit is conditional on the version that the writer saw.

delta-rs writes small commits in milliseconds, without a Spark job. Two rules make it safe for us:

- *No blind retry.* A commit that finds its version taken is refused (CommitConflict). Delta's own conflict
  resolution would let two drivers append side by side, and both would believe that they own the state. But who took
  the version is looked at: where an answer is lost and the store is asked again, it may have been this very commit.
- *Once per barrier.* Each commit carries the epoch that it brings the table to (a Delta `txn` action), so a
  re-run batch sees that its effect is there. The id of that record is fixed at the table's creation, so it goes
  with the table and not with any checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from schemas.errors import Code, CommitConflict
from state.storage import DataFile, Storage, corrupt, now_ms

RETENTION_HOURS = 1
"""How long a data file outlives the last version that holds it: far longer than any plan pins a version."""

_HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)
_CONFIGURATION = {
    # A reader replays at most this many small commits.
    "delta.checkpointInterval": "100",
    # Each batch commits three times; a month of them would be millions of files.
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    # Readers are given plain files.
    "delta.enableDeletionVectors": "false",
}


_PARTITION = "partition."
"""How delta-rs marks partition columns among a table's add actions."""


class Ledger:
    """One open table. `version` is what this writer saw last; only `commit` and `reload` move it."""

    def __init__(
        self, storage: Storage, path: str, schema: pa.Schema, *, partition_by: Sequence[str] = ()
    ) -> None:
        self.storage, self.path, self.schema, self._partition_by = storage, path, schema, list(partition_by)
        self._table = _open_or_create(storage, path, schema, partition_by)
        self.id = str(self._table.metadata().id)
        self._app_id = f"backfill-{self.id}"

    @property
    def version(self) -> int:
        """The version that the next commit is conditional on."""
        return int(self._table.version())

    @property
    def epoch(self) -> int:
        """The epoch that the table's last commit brought it to; 0 before any."""
        return self._table.transaction_version(self._app_id) or 0

    def reload(self) -> None:
        """See what others committed. Only where no plan of ours is open."""
        self._table.update_incremental()

    def files(self, bounds: Sequence[str] = ()) -> list[DataFile]:
        """The files of the version seen, with the bounds of the named columns."""
        return _files(self._table, bounds)

    def files_at(self, version: int, bounds: Sequence[str] = ()) -> list[DataFile]:
        """The files of an older version."""
        return _files(self.storage.delta(self.path, version=version), bounds)

    def read(self, files: Sequence[DataFile] | None = None) -> pa.Table:
        """All rows of the version seen, or of these files. Raises: as `Storage.read_parquet`."""
        chosen = self.files() if files is None else files
        return self.storage.read_parquet(self.path, [file.path for file in chosen], self.schema)

    def commit(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile] = (),
        *,
        epoch: int | None,
        data_change: bool = True,
    ) -> None:
        """Add and remove files in one commit on top of the version seen; `epoch` None leaves the epoch as it is.

        Raises: CommitConflict when somebody else committed since; nothing was written then. Also when this very
        commit had landed, its answer was lost, and it adds no file to know it by.
        """
        seen = self.version
        transactions = None if epoch is None else [Transaction(self._app_id, epoch)]
        try:
            self._table.create_write_transaction(
                _actions(added, removed, data_change),
                mode="append",
                schema=self.schema,
                partition_by=self._partition_by,
                commit_properties=CommitProperties(max_commit_retries=0, app_transactions=transactions),
                post_commithook_properties=_HOOKS,
            )
            self._table.update_incremental()
        except CommitFailedError as error:
            if not self._holds(added, seen + 1):
                raise self._conflict(seen) from error
            self._table.update_incremental()
        if self.version != seen + 1:
            raise self._conflict(seen)

    def _holds(self, added: Sequence[DataFile], version: int) -> bool:
        """Whether the newest version is this one, with the files in it. A refused writer's `version` stays."""
        newest = self.storage.delta(self.path)
        there = {file.path for file in _files(newest, ())}
        return bool(added) and newest.version() == version and there.issuperset(f.path for f in added)

    def _conflict(self, seen: int) -> CommitConflict:
        return CommitConflict(
            Code.STATE_CONFLICT,
            where=self.storage.uri(self.path),
            found=f"a commit of somebody else on top of version {seen}",
            expected="one instance of the service for one state folder",
            next_step="see which other process uses this state; the newest one goes on",
        )


def delete_unused(storage: Storage, path: str, *, retention_hours: int = RETENTION_HOURS) -> int:
    """Delete data files that no version of the last hours holds, left-overs of crashes too; how many.

    Delta's own vacuum leaves commits behind, and any commit of an instance that was fenced without knowing it would
    fence the one that works. So vacuum is only asked what it would delete.
    """
    table = storage.delta(path)
    unused = table.vacuum(retention_hours=retention_hours, dry_run=True, enforce_retention_duration=False)
    for name in unused:
        storage.filesystem.delete_file(storage.path(path, name))
    return len(unused)


def _files(table: DeltaTable, bounds: Sequence[str]) -> list[DataFile]:
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ["path", "size_bytes", "num_records"]
    names += [f"{end}.{column}" for column in bounds for end in ("min", "max")]
    if any(name not in actions.column_names for name in names):  # a table without files has no statistics
        return []
    columns = (actions[name].to_pylist() for name in names)
    return [
        DataFile(
            path,
            size,
            rows,
            dict(zip(bounds, zip(ends[::2], ends[1::2], strict=True), strict=True)),
            partition,
        )
        for (path, size, rows, *ends), partition in zip(
            zip(*columns, strict=True), _partitions(actions), strict=True
        )
    ]


def _partitions(actions: pa.Table) -> list[dict[str, str]]:
    """The partition of each file, values as the table's log has them."""
    names = [name for name in actions.column_names if name.startswith(_PARTITION)]
    values = [actions[name].cast(pa.string()).to_pylist() for name in names]
    plain = [name.removeprefix(_PARTITION) for name in names]
    return [
        dict(zip(plain, row, strict=True))
        for row in (zip(*values, strict=True) if names else [()] * actions.num_rows)
    ]


def _actions(
    added: Sequence[DataFile], removed: Sequence[DataFile], data_change: bool
) -> list[AddAction | RemoveAction]:
    now = now_ms()
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, file.partition, now, data_change, file.statistics) for file in added
    ]
    actions += [
        RemoveAction(file.path, data_change, now, file.size, dict(file.partition)) for file in removed
    ]
    return actions


def _open_or_create(
    storage: Storage, path: str, schema: pa.Schema, partition_by: Sequence[str]
) -> DeltaTable:
    """The Delta table at `path`.

    Raises: StateError(STATE_TABLE_CORRUPT, STATE_PATH_INVALID).
    """
    try:
        return storage.delta(path)
    except TableNotFoundError:
        return storage.create_delta(path, schema, configuration=_CONFIGURATION, partition_by=partition_by)
    except DeltaError as error:
        raise corrupt(
            storage.uri(path), f"a Delta table that does not open ({type(error).__name__})"
        ) from error
