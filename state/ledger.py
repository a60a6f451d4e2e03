"""A Delta table whose commits happen exactly once: one writer, and each conditional on the version that it saw.

delta-rs writes small commits in milliseconds, without a Spark job. Two rules make it safe for us:

- *No blind retry.* A commit that finds its version taken is refused (CommitConflict). Delta's own conflict
  resolution would let two drivers append side by side, and both would believe that they own the state. Who took the
  version is checked: where an answer was lost and the request repeated, it may have been this very commit.
- *Once per barrier.* Each commit carries the epoch that it brings the table to (a Delta `txn` action), so a
  re-run batch sees that its effect is there. The id of that record is fixed at the table's creation, so it goes
  with the table and not with any checkpoint.

A commit may carry a note, a text that is atomic with its marks. Delta keeps it in the commit alone, and the newest
commit is never cleaned away, so each commit repeats the note of the one before, unless it brings another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from schemas.errors import Code, CommitConflict, StateError
from state.small_files import written_ms
from state.storage import DataFile, Storage, corrupt, now_ms

# Old commits are deleted by `state.maintenance.cleaning`.
_HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)

LOG = "_delta_log"
"""The folder of a table's commits and checkpoints."""
_NOTE = "backfillNote"
"""The note's key in a commit's `commitInfo`."""
_NO_PARTITION = "-1"
_PARTITION = "partition."
"""delta-rs's prefix of partition columns in a table's add actions."""


class Ledger:
    """One open table. `version` is what this writer saw last; only `commit` and `reload` move it."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        checkpoint_commits: int | None = None,
    ) -> None:
        """`checkpoint_commits`, for a new table: by default the storage's retention has it."""
        commits = checkpoint_commits or storage.retention.checkpoint_commits
        self.storage, self.path, self.schema, self._partition_by = storage, path, schema, list(partition_by)
        self._table = _open_or_create(storage, path, schema, partition_by, commits)
        self.id = str(self._table.metadata().id)
        self._app_id = f"backfill-{self.id}"
        self._records_id = f"{self._app_id}-records"
        self._copied_id = f"{self._app_id}-copied"
        self._marks: dict[str, int] = {}
        """The marks that were read or written, of the version seen."""
        self._noted: tuple[int, str | None] | None = None
        """A version, and the note of its commit."""
        self._sync_commits(self.version)

    @property
    def version(self) -> int:
        """The version that the next commit is conditional on."""
        return int(self._table.version())

    @property
    def committed_ms(self) -> int | None:
        """The Unix milliseconds at which the version seen was written, by the storage's clock; None if it says none."""
        return written_ms(self.storage, self.path, LOG, _commit_name(self.version))

    @property
    def epoch(self) -> int:
        """The epoch that the table's last commit brought it to; 0 before any."""
        return self._mark(self._app_id)

    @property
    def records(self) -> int:
        """The mark of the last commit of a part of an epoch (`BatchPlan.end_records`); 0 before any."""
        return self._mark(self._records_id)

    @property
    def copied(self) -> int:
        """The number of parts of another table copied into this one, by the last commit's mark; 0 before any."""
        return self._mark(self._copied_id)

    def _mark(self, name: str) -> int:
        """Read once a version: Delta reads every commit since the last checkpoint for it, a request each in a store."""
        if name not in self._marks:
            self._marks[name] = self._table.transaction_version(name) or 0
        return self._marks[name]

    @property
    def note(self) -> str | None:
        """The note of the version seen; None where no commit ever brought one."""
        version = self.version
        if self._noted is None or self._noted[0] != version:
            self._noted = version, self._read_note(version)
        return self._noted[1]

    def _read_note(self, version: int) -> str | None:
        try:
            lines = self.storage.read_file(self.path, LOG, _commit_name(version)).splitlines()
        except FileNotFoundError:
            return None  # cleaned: the table has moved on, and a commit on top of this version is refused
        infos = (json.loads(line).get("commitInfo", {}) for line in lines)
        return next((info[_NOTE] for info in infos if _NOTE in info), None)

    def reload(self) -> None:
        """Move to the newest version, with other writers' commits. Only where no plan of ours is open."""
        seen = self.version
        self._marks = {}
        self._table.update_incremental()
        self._sync_commits(seen + 1)

    def adopt_schema(self) -> None:
        """Make `schema` that of the Delta table, in one commit; does nothing twice, nor for an older version's schema.

        A commit of files leaves the table's schema as it is, and readers would never see new columns and wider types.
        Files stay as they are: one that lacks a column, or has it in a narrower type, is read as the schema says.
        Raises: CommitConflict, as `commit`.
        """
        if self._has_schema(self._table):
            return
        seen, note = self.version, self.note
        self.storage.await_synced()
        try:
            # delta-rs changes types in overwrites alone. This one is of a partition that is not there.
            nowhere = [(self.schema.names[0], "=", _NO_PARTITION)]
            self._transact([], note, mode="overwrite", partition_filters=nowhere)
        except CommitFailedError as error:
            newest = self.storage.delta(self.path)
            if newest.version() != seen + 1 or not self._has_schema(newest):
                raise self._conflict(seen) from error
        self._table.update_incremental()
        if self.version != seen + 1:
            raise self._conflict(seen)
        self._noted = (self.version, note)
        self._sync_commits(self.version)

    def _has_schema(self, table: DeltaTable) -> bool:
        """True if a table has the columns of `schema` in these types, or in wider ones of a newer version."""
        stored = pa.schema(table.schema().to_arrow())
        types = dict(zip(stored.names, stored.types, strict=True))
        return all(
            each.name in types
            and (types[each.name] == each.type or _room(types[each.name]) >= _room(each.type))
            for each in self.schema
        )

    def files(self, bounds: Sequence[str] = (), *, version: int | None = None) -> list[DataFile]:
        """The files of a version, by default the one seen, with the bounds of the named columns."""
        if version in (None, self.version):
            return _files(self._table, bounds)
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
        records: int | None = None,
        copied: int | None = None,
        data_change: bool = True,
        note: str | None = None,
    ) -> None:
        """Add and remove files in one commit on top of the version seen; marks and notes that are None stay.

        It is on the disk before the next commit of any table; callers that rely on it sooner call `await_synced`.

        Raises: CommitConflict when another writer committed since; nothing was written then. Also when this very commit
        had landed, its answer was lost, and it adds no file to recognise it by.
        """
        seen, note = self.version, self.note if note is None else note
        if added:
            self.storage.sync(self.path)
        self.storage.await_synced()
        given = {self._app_id: epoch, self._records_id: records, self._copied_id: copied}
        marks = {name: mark for name, mark in given.items() if mark is not None}
        known, self._marks = self._marks, {}
        try:
            self._transact(_actions(added, removed, data_change), note, marks, mode="append")
            self._table.update_incremental()
        except CommitFailedError as error:
            if not self._holds(added, seen + 1):
                raise self._conflict(seen) from error
            self._table.update_incremental()
        except DeltaError as error:
            # The commits behind the version seen are so old that they were cleaned away.
            if self.storage.delta(self.path).version() > seen:
                raise self._conflict(seen) from error
            raise
        if self.version != seen + 1:
            raise self._conflict(seen)
        self._marks, self._noted = known | marks, (self.version, note)
        self._sync_commits(self.version)

    def _transact(
        self,
        actions: list[AddAction | RemoveAction],
        note: str | None,
        marks: Mapping[str, int] = MappingProxyType({}),
        **how: Any,
    ) -> None:
        """Write one commit. Raises: deltalake's CommitFailedError, DeltaError."""
        self._table.create_write_transaction(
            actions,
            schema=self.schema,
            partition_by=self._partition_by,
            commit_properties=CommitProperties(
                custom_metadata=None if note is None else {_NOTE: note},
                max_commit_retries=0,
                app_transactions=[Transaction(name, mark) for name, mark in marks.items()] or None,
            ),
            post_commithook_properties=_HOOKS,
            **how,
        )

    def _sync_commits(self, first: int) -> None:
        """Begin to sync the commits from `first` to the version seen: the next effect relies on them."""
        names = [_commit_name(version) for version in range(first, self.version + 1)]
        if names:
            self.storage.begin_sync(*((self.path, LOG, name) for name in names), (self.path, LOG))

    def _holds(self, added: Sequence[DataFile], version: int) -> bool:
        """True if the newest version is this one, with the files in it. A refused writer's `version` stays."""
        newest = self.storage.delta(self.path)
        there = {file.path for file in _files(newest, ())}
        return bool(added) and newest.version() == version and there.issuperset(f.path for f in added)

    def _conflict(self, seen: int) -> CommitConflict:
        return CommitConflict(
            Code.STATE_CONFLICT,
            where=self.storage.uri(self.path),
            found=f"a commit of another process on top of version {seen}",
        )


def _room(kind: pa.DataType) -> tuple[int, int]:
    """The room of a type of numbers, which is more in a wider one."""
    return (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (kind.bit_width, 0)


def _commit_name(version: int) -> str:
    return f"{version:020d}.json"


def files_of(storage: Storage, path: str, version: int) -> list[DataFile]:
    """The files of a version of the table at `path`, without bounds. Raises: deltalake's DeltaError."""
    return _files(storage.delta(path, version=version), ())


def _files(table: DeltaTable, bounds: Sequence[str]) -> list[DataFile]:
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ["path", "size_bytes", "num_records"]
    names += [f"{end}.{column}" for column in bounds for end in ("min", "max")]
    if any(name not in actions.column_names for name in names):  # a table without files has no statistics
        return []
    columns = (actions[name].to_pylist() for name in names)
    files = []
    for (path, size, rows, *ends), partition in zip(
        zip(*columns, strict=True), _partitions(actions), strict=True
    ):
        spans = dict(zip(bounds, zip(ends[::2], ends[1::2], strict=True), strict=True))
        files.append(DataFile(path, size, rows, spans, partition))
    return files


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
    return [
        *(
            AddAction(each.path, each.size, each.partition, now, data_change, each.statistics)
            for each in added
        ),
        *(RemoveAction(each.path, data_change, now, each.size, dict(each.partition)) for each in removed),
    ]


def _open_or_create(
    storage: Storage, path: str, schema: pa.Schema, partition_by: Sequence[str], checkpoint_commits: int
) -> DeltaTable:
    """The Delta table at `path`.

    Raises: StateError(STATE_TABLE_CORRUPT, STATE_PATH_INVALID).
    """
    if (found := _opened(storage, path)) is not None:
        return found
    properties = storage.retention.properties(checkpoint_commits)
    try:
        return storage.create_delta(path, schema, configuration=properties, partition_by=partition_by)
    except (DeltaError, StateError):
        # Of services that are started at one moment on a new state, one makes the table.
        if (made := _opened(storage, path)) is not None:
            return made
        raise


def _opened(storage: Storage, path: str) -> DeltaTable | None:
    try:
        return storage.delta(path)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise corrupt(
            storage.uri(path), f"a Delta table that does not open ({type(error).__name__})"
        ) from error
