"""Delta tables and Parquet files in memory, behind the service's own `Storage`.

A table is a list of versions; a commit is conditional on the version that the writer saw, unless it allows retries:
then it goes on top of whatever is there, as Delta's own conflict resolution would have it for an append. Old versions
and files stay for ever. `Ledger`, `Journal`, `ProgressTable` and `Replica` on top are the service's.

The disk below it is as harsh as POSIX allows: until a file is synced, a power failure may leave it empty, or take it;
until its folder is synced too, it may take it. Each is lost or kept by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction
from pyarrow import fs

from state.columns import NO_FILLS, Fills, with_fills
from state.ledger import LOG
from state.storage import DataFile, Storage, corrupt
from tests.simulation.scheduler import Scheduler


@dataclass(frozen=True, eq=False)
class Version:
    """Files by path, as `get_add_actions` tells them, the `txn` versions by application, and what the commit tells.

    `schema` is the table's. Itself and no other.
    """

    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    info: Mapping[str, str] = field(default_factory=dict)
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))

    @cached_property
    def actions(self) -> pa.Table:
        """The add actions, as `DeltaTable.get_add_actions(flatten=True)` gives them."""
        return pa.Table.from_pylist(list(self.files.values())) if self.files else _NO_ACTIONS


_NO_ACTIONS = pa.table({"path": [], "size_bytes": [], "num_records": [], "partition._bf_vnode": []})


def _flat(action: AddAction) -> dict[str, Any]:
    statistics = json.loads(action.stats)
    row = {"path": action.path, "size_bytes": action.size, "num_records": statistics["numRecords"]}
    for end, name in (("min", "minValues"), ("max", "maxValues")):
        row |= {f"{end}.{column}": value for column, value in statistics[name].items()}
    return row | {f"partition.{column}": value for column, value in action.partition_values.items()}


Loss = Callable[[str], str]
"""What a power failure does to a file that is not synced: `kept`, `empty` or `gone`."""


@dataclass
class Files:
    """All that the state folder holds, and which of it a power failure may take."""

    tables: dict[str, list[Version]] = field(default_factory=dict)
    contents: dict[str, pa.Table] = field(default_factory=dict)
    unsynced: dict[str, None] = field(default_factory=dict)
    """Files whose content is not on the disk, commits too."""
    unnamed: dict[str, None] = field(default_factory=dict)
    """Files whose name is not."""
    torn: set[str] = field(default_factory=set)
    """Tables whose newest commit is torn."""
    count: int = 0
    """Of data files ever written: no name is used twice."""
    is_mixed: bool = False
    """True if one table is older than the others: what the upstream has to hold follows from that one."""

    def copy(self) -> Files:
        """A second one in the same state."""
        tables = {path: list(versions) for path, versions in self.tables.items()}
        at_risk = dict(self.unsynced), dict(self.unnamed)
        return Files(tables, dict(self.contents), *at_risk, set(self.torn), self.count, self.is_mixed)

    def wrote(self, path: str) -> None:
        """A file is new."""
        self.unsynced[path] = self.unnamed[path] = None

    def synced(self, path: str) -> None:
        """A file, or a folder with the names in it."""
        self.unsynced.pop(path, None)
        for name in [name for name in self.unnamed if name.rpartition("/")[0] == path]:
            del self.unnamed[name]

    def restore(self, backup: Files) -> None:
        """Become what a backup holds."""
        self.tables = {path: list(versions) for path, versions in backup.tables.items()}
        self.torn, self.unsynced, self.unnamed = set(backup.torn), {}, {}
        self.is_mixed = backup.is_mixed

    def has_plan(self) -> bool:
        """True if the journal holds one, torn commits left out: without it the state is a new one, not an older one."""
        versions = self.tables.get("journal", [])
        whole = versions[:-1] if "journal" in self.torn else versions
        files = whole[-1].files if whole else {}
        rows = (self.contents[f"journal/{file}"].to_pylist() for file in files)
        return any(row["plan"] is not None for each in rows for row in each)

    @property
    def at_risk(self) -> list[str]:
        """The paths that a power failure may take."""
        return list(self.unsynced | self.unnamed)

    def lose_power(self, loss: Loss) -> None:
        """Lose the paths at risk, each as `loss` says."""
        for path in self.at_risk:
            left = loss(path)
            if left == "kept" or (left == "empty" and path not in self.unsynced):
                continue
            table, _, name = path.rpartition("/")
            if not name.endswith(".json"):
                del self.contents[path]
                continue
            table, number = table.removesuffix(f"/{LOG}"), int(name.removesuffix(".json"))
            if number < len(self.tables[table]):
                del self.tables[table][number:]  # what is on top of a gap is never seen
                self.torn.discard(table)
                if left == "empty":
                    self.torn.add(table)
        self.unsynced, self.unnamed = {}, {}


class MemoryStorage(Storage):
    """The state folder as one process sees it."""

    def __init__(self, files: Files, scheduler: Scheduler) -> None:
        super().__init__("memory://state")
        object.__setattr__(self, "memory", files)
        object.__setattr__(self, "scheduler", scheduler)
        object.__setattr__(self, "begun", [])

    memory: Files
    scheduler: Scheduler
    begun: list[Sequence[str]]

    @property
    def filesystem(self) -> fs.FileSystem:
        """Of it nothing is used but the making of folders, which takes no time here."""
        return fs._MockFileSystem()

    def path(self, *parts: str) -> str:
        return "/".join(parts)

    def sync(self, *parts: str) -> None:
        self.memory.synced("/".join(parts))

    def begin_sync(self, *paths: Sequence[str]) -> None:
        self.begun.extend(paths)

    def await_synced(self) -> None:
        if self.begun:
            self.scheduler.step("wait for syncs")
        while self.begun:
            self.sync(*self.begun.pop(0))

    def set_torn_aside(self) -> list[str]:
        torn = sorted(self.memory.torn)
        self.memory.torn.clear()
        return torn

    def newest_row(self, path: str) -> dict[str, Any]:
        """The only row of a table's newest version, for a judge."""
        (file,) = self.memory.tables[path][-1].files
        (row,) = self.memory.contents[f"{path}/{file}"].to_pylist()
        return dict(row)

    def every_row(self, path: str, column: str) -> Iterator[Any]:
        """The values of a column of a table of one row, from its first version on; likewise."""
        for version in self.memory.tables[path]:
            for file in version.files:
                yield self.memory.contents[f"{path}/{file}"][column][0].as_py()

    def exists(self, *parts: str) -> bool:
        """Only commits of tables are looked for."""
        self.scheduler.step(f"look for {'/'.join(parts)}")
        path, number = "/".join(parts[:-2]), int(parts[-1].removesuffix(".json"))
        return number < len(self.memory.tables[path])

    def read_file(self, *parts: str) -> bytes:
        """Only commits of tables are read so, and of those only what they tell of themselves."""
        path, number = "/".join(parts[:-2]), int(parts[-1].removesuffix(".json"))
        return json.dumps({"commitInfo": self.memory.tables[path][number].info}).encode()

    def delta(self, path: str, *, version: int | None = None) -> MemoryTable:  # type: ignore[override]  # the part that is used
        if version is None:
            self.scheduler.step(f"open {path}")
        if path not in self.memory.tables:
            raise TableNotFoundError(path)
        if path in self.memory.torn:
            raise corrupt(path, "an empty commit")
        return MemoryTable(self, path, version)

    def create_delta(  # type: ignore[override]  # likewise
        self,
        path: str,
        schema: pa.Schema,
        *,
        configuration: Mapping[str, str],
        partition_by: Sequence[str] = (),
    ) -> MemoryTable:
        self.memory.tables[path] = [Version(schema=schema)]
        return MemoryTable(self, path, None)

    def read_parquet(
        self,
        table_path: str,
        files: Sequence[str],
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        wanted: pc.Expression | None = None,
        fills: Fills = NO_FILLS,
    ) -> pa.Table:
        names = schema.names if columns is None else list(columns)
        if not files:
            return schema.empty_table().select(names)
        found = [self.memory.contents[f"{table_path}/{file}"] for file in files]
        rows = pa.concat_tables([with_columns(each, schema, fills) for each in found])
        return (rows if wanted is None else rows.filter(wanted)).select(names)

    def write_parquet(
        self,
        table_path: str,
        table: pa.Table,
        *,
        stem: str,
        bound_columns: tuple[str, ...] = (),
        row_group_rows: int = 0,
    ) -> DataFile:
        self.memory.count += 1
        name = f"{stem}-{self.memory.count}.parquet"
        self.memory.contents[f"{table_path}/{name}"] = table
        self.memory.wrote(f"{table_path}/{name}")
        self.sync(table_path, name)
        bounds = {}
        for column in bound_columns if table.num_rows else ():
            span = pc.min_max(table[column]).as_py()
            bounds[column] = (span["min"], span["max"])
        return DataFile(name, 1, table.num_rows, bounds)


class MemoryTable:
    """The part of `deltalake.DeltaTable` that the state uses."""

    def __init__(self, storage: MemoryStorage, path: str, version: int | None) -> None:
        self._storage, self._path = storage, path
        self._versions = storage.memory.tables[path]
        self._seen = len(self._versions) - 1 if version is None else version

    def version(self) -> int:
        return self._seen

    def metadata(self) -> SimpleNamespace:
        return SimpleNamespace(id=self._path)

    def transaction_version(self, app_id: str) -> int | None:
        return self._versions[self._seen].marks.get(app_id)

    def get_add_actions(self, flatten: bool) -> pa.Table:
        assert flatten
        return self._versions[self._seen].actions

    def update_incremental(self) -> None:
        self._seen = len(self._versions) - 1

    def create_write_transaction(
        self,
        actions: Sequence[AddAction | RemoveAction],
        *,
        mode: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        commit_properties: CommitProperties,
        post_commithook_properties: object,
        partition_filters: object = None,
    ) -> None:
        """A commit. One that overwrites a part of the table that has no file changes its schema alone."""

        def made(last: Version) -> Version:
            after = _after(last, actions, commit_properties)
            return after if mode == "append" else replace(after, schema=schema)

        assert mode == "append" or (partition_filters and not actions)
        self._commit(made, commit_properties)

    def schema(self) -> SimpleNamespace:
        return SimpleNamespace(to_arrow=lambda: self._versions[self._seen].schema)

    def _commit(self, made: Callable[[Version], Version], properties: CommitProperties) -> None:
        scheduler = self._storage.scheduler
        scheduler.step(f"commit {self._path} on version {self._seen}")
        if len(self._versions) != self._seen + 1 and properties.max_commit_retries == 0:
            raise CommitFailedError(f"version {self._seen + 1} is there")
        self._storage.memory.wrote(f"{self._path}/{LOG}/{self._seen + 1:020d}.json")
        self._versions.append(made(self._versions[-1]))
        if scheduler.outcome(f"commit {self._path}", "answered", "answer lost") == "answer lost":
            raise CommitFailedError("a second try found the first one's commit")


def with_columns(rows: pa.Table, schema: pa.Schema, fills: Fills) -> pa.Table:
    """The rows of a file in these columns and types; those that it lacks as a reader fills them."""
    names, own = schema.names, rows.column_names
    for name in (name for name in names if name not in own):
        rows = rows.append_column(schema.field(name), pa.nulls(rows.num_rows, schema.field(name).type))
    return with_fills(rows.select(names).cast(schema), own, fills)


def _after(
    version: Version, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties
) -> Version:
    files, marks = dict(version.files), dict(version.marks)
    for action in actions:
        if isinstance(action, AddAction):
            files[action.path] = _flat(action)
        else:
            files.pop(action.path, None)
    for transaction in properties.app_transactions or ():
        marks[transaction.app_id] = transaction.version
    return replace(version, files=files, marks=marks, info=properties.custom_metadata or {})
