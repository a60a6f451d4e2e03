"""Delta tables and Parquet files in memory, behind the service's own `Storage`.

A table is a list of versions; a commit is conditional on the version that the writer saw, unless he allows retries:
then it goes on top of whatever is there, as Delta's own conflict resolution would have it for an append. Old versions
and files stay for ever. `Ledger`, `Journal`, `ProgressTable` and `Replica` on top are the service's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction

from state.storage import DataFile, Storage
from tests.simulation.scheduler import Scheduler


@dataclass(frozen=True, eq=False)
class Version:
    """Files by path, as `get_add_actions` tells them, and the `txn` versions by application. Itself and no other."""

    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def actions(self) -> pa.Table:
        """As `DeltaTable.get_add_actions(flatten=True)` gives them."""
        return pa.Table.from_pylist(list(self.files.values())) if self.files else _NO_ACTIONS


_NO_ACTIONS = pa.table({"path": [], "size_bytes": [], "num_records": [], "partition._bf_vnode": []})


def _flat(action: AddAction) -> dict[str, Any]:
    statistics = json.loads(action.stats)
    row = {"path": action.path, "size_bytes": action.size, "num_records": statistics["numRecords"]}
    for end, name in (("min", "minValues"), ("max", "maxValues")):
        row |= {f"{end}.{column}": value for column, value in statistics[name].items()}
    return row | {f"partition.{column}": value for column, value in action.partition_values.items()}


@dataclass
class Files:
    """All that the state folder holds."""

    tables: dict[str, list[Version]] = field(default_factory=dict)
    contents: dict[str, pa.Table] = field(default_factory=dict)

    def copy(self) -> Files:
        """The same once more."""
        return Files({path: list(versions) for path, versions in self.tables.items()}, dict(self.contents))


class MemoryStorage(Storage):
    """The state folder as one process sees it."""

    def __init__(self, files: Files, scheduler: Scheduler) -> None:
        super().__init__("memory://state")
        object.__setattr__(self, "memory", files)
        object.__setattr__(self, "scheduler", scheduler)

    memory: Files
    scheduler: Scheduler

    def newest_row(self, path: str) -> dict[str, Any]:
        """The only row of a table's newest version, for those who look on."""
        (file,) = self.memory.tables[path][-1].files
        (row,) = self.memory.contents[f"{path}/{file}"].to_pylist()
        return dict(row)

    def every_row(self, path: str, column: str) -> Iterator[Any]:
        """What a column of a table of one row has been, from its first version on; likewise."""
        for version in self.memory.tables[path]:
            for file in version.files:
                yield self.memory.contents[f"{path}/{file}"][column][0].as_py()

    def exists(self, *parts: str) -> bool:
        """Only commits of tables are looked for."""
        self.scheduler.step(f"look for {'/'.join(parts)}")
        path, number = "/".join(parts[:-2]), int(parts[-1].removesuffix(".json"))
        return number < len(self.memory.tables[path])

    def delta(self, path: str, *, version: int | None = None) -> MemoryTable:  # type: ignore[override]  # the part that is used
        if version is None:
            self.scheduler.step(f"open {path}")
        if path not in self.memory.tables:
            raise TableNotFoundError(path)
        return MemoryTable(self, path, version)

    def create_delta(  # type: ignore[override]  # likewise
        self,
        path: str,
        schema: pa.Schema,
        *,
        configuration: Mapping[str, str],
        partition_by: Sequence[str] = (),
    ) -> MemoryTable:
        self.memory.tables[path] = [Version()]
        return MemoryTable(self, path, None)

    def read_parquet(
        self,
        table_path: str,
        files: Sequence[str],
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        wanted: pc.Expression | None = None,
    ) -> pa.Table:
        names = schema.names if columns is None else list(columns)
        if not files:
            return schema.empty_table().select(names)
        rows = pa.concat_tables([self.memory.contents[f"{table_path}/{file}"] for file in files])
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
        name = f"{stem}-{len(self.memory.contents)}.parquet"
        self.memory.contents[f"{table_path}/{name}"] = table
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
    ) -> None:
        scheduler = self._storage.scheduler
        scheduler.step(f"commit {self._path} on version {self._seen}")
        if len(self._versions) != self._seen + 1 and commit_properties.max_commit_retries == 0:
            raise CommitFailedError(f"version {self._seen + 1} is there")
        self._versions.append(_after(self._versions[-1], actions, commit_properties))
        if scheduler.outcome(f"commit {self._path}", "answered", "answer lost") == "answer lost":
            raise CommitFailedError("a second try found the first one's commit")


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
    return replace(version, files=files, marks=marks)
