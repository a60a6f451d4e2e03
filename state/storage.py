"""Storage of durable state: a folder, or an object store (`state.object_store`).

Everything below the root is an ordinary Delta table or Parquet file:

    replica/base, replica/log      the replica
    journal                        the plan of the open batch, and who owns the state
    progress                       one row per changed vnode and barrier
    schemas, pins                  the upstream's schemas by id, versions that are kept: small JSON files
    upstream                       empty ranges of the upstream's offsets, a small JSON file
    initial/chunks, /waiting       rows and events on their way in, while a table starts from a database
"""

from __future__ import annotations

import io
import json
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from schemas.errors import Code, StateError
from state.columns import NO_FILLS, Fills, filled
from state.durability import Background, set_torn_aside, sync_path
from state.object_store import delta_options, fault_of, is_store, open_store
from state.retention import StateRetention

_BATCH_ROWS = 4_096
_TABLES = ("replica", "replica/base", "replica/log", "journal", "progress")
_OURS = (*_TABLES, "schemas", "upstream", "pins", "initial", "initial/chunks", "initial/waiting")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a Delta table: path below the table's root, bytes, rows, true column bounds, partition.

    `bounds` maps a column to its (minimum, maximum). A column may be left out; a wrong bound is never allowed, because
    readers skip files by it.
    """

    path: str
    size: int
    rows: int
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    partition: Mapping[str, str] = field(default_factory=dict)

    @property
    def statistics(self) -> str:
        """The `stats` field of a Delta add action."""
        low = {name: pair[0] for name, pair in self.bounds.items()}
        high = {name: pair[1] for name, pair in self.bounds.items()}
        return json.dumps({"numRecords": self.rows, "minValues": low, "maxValues": high})


@dataclass(frozen=True)
class Storage:
    """The root of the state. Cheap to make and to pickle: lanes build their own filesystem from it.

    Everything durable is read and written through it. With `synced`, data written to a local file system is on the disk
    before anything relies on it (`state.durability`).
    """

    root: str
    retention: StateRetention = StateRetention()  # noqa: RUF009 (a value)
    """For the process that creates and cleans tables; it is not pickled to lanes."""
    synced: bool = True

    def __post_init__(self) -> None:
        if not self.is_store:
            object.__setattr__(self, "root", str(Path(self.root).resolve()))

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "synced": self.synced}

    @property
    def is_store(self) -> bool:
        """True if the root is in an object store, which shows an object once it is complete and durable."""
        return is_store(self.root)

    def uri(self, *parts: str) -> str:
        """The path or URI of a part of the state for delta-rs and Spark."""
        return "/".join((self.root.rstrip("/"), *parts))

    @cached_property
    def _resolved(self) -> tuple[fs.FileSystem, str]:
        filesystem, path = open_store(self.root if self.is_store else Path(self.root).as_uri())
        return filesystem, path.rstrip("/")

    @cached_property
    def _delta_options(self) -> dict[str, str] | None:
        return delta_options(self.root)

    @property
    def filesystem(self) -> fs.FileSystem:
        return self._resolved[0]

    def path(self, *parts: str) -> str:
        """The path of a part of the state for `filesystem`."""
        return "/".join((self._resolved[1], *parts))

    def prepare(self) -> None:
        """Create the root; check that it can be written, and that no link in it leads out of it.

        Raises: StateError(STATE_PATH_INVALID).
        """
        if self.is_store:
            # On such a store two instances could both win the same commit.
            if (fault := fault_of(self.root, self.uri("journal"))) is not None:
                raise self._invalid("", fault)
            return
        root = Path(self.root)
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=root):
                pass
        except OSError as error:
            raise self._invalid("", f"a path that can't be written ({error.strerror})") from error
        for name in _OURS:
            if not (root / name).resolve().is_relative_to(root):
                raise self._invalid(name, "a link that leads out of the state's folder")

    def sync(self, *parts: str) -> None:
        """Wait until a file, or the names in a folder, are on the disk. Does nothing on an object store."""
        if self._syncs:
            sync_path(Path(self.root, *parts))

    def begin_sync(self, *paths: Sequence[str]) -> None:
        """Start to sync these, in this order; `await_synced` waits for them."""
        if self._syncs:
            self._background.begin([Path(self.root, *parts) for parts in paths])

    def await_synced(self) -> None:
        """Wait until all paths given to `begin_sync` are on the disk."""
        if self._syncs:
            self._background.wait()

    @property
    def _syncs(self) -> bool:
        return self.synced and not self.is_store

    @cached_property
    def _background(self) -> Background:
        return Background()

    def set_torn_aside(self) -> list[str]:
        """Rename files that a power failure left half written; returns their paths. For the state's owner only."""
        if self.is_store:
            return []
        torn = [path for name in _OURS for path in set_torn_aside(Path(self.root, name))]
        return [str(path.relative_to(self.root)) for path in torn]

    def _invalid(self, path: str, found: str) -> StateError:
        return StateError(Code.STATE_PATH_INVALID, where=self.uri(path) if path else self.root, found=found)

    def write_file(self, data: bytes, folder: str, name: str) -> None:
        """Write a small file, atomically; it is on the disk when this returns."""
        self.filesystem.create_dir(self.path(folder), recursive=True)
        # A store shows an object once it is complete.
        draft = name if self.is_store else f".{name}-{uuid.uuid4().hex[:12]}"
        with self.filesystem.open_output_stream(self.path(folder, draft)) as out:
            out.write(data)
        if draft != name:
            self.sync(folder, draft)
            self.filesystem.move(self.path(folder, draft), self.path(folder, name))
            self.sync(folder)
            self.sync()

    def read_file(self, *parts: str) -> bytes:
        """The bytes of a small file. Raises: OSError."""
        with self.filesystem.open_input_stream(self.path(*parts)) as source:
            return bytes(source.read())

    def exists(self, *parts: str) -> bool:
        """True if the file or folder exists."""
        info = self.filesystem.get_file_info(self.path(*parts))
        return bool(info.type != fs.FileType.NotFound)

    def listed(self, *parts: str) -> list[fs.FileInfo]:
        """The entries of a folder, not recursive; none if it does not exist. Raises: OSError."""
        there = fs.FileSelector(self.path(*parts), allow_not_found=True)
        try:
            return list(self.filesystem.get_file_info(there))
        except FileNotFoundError:  # Arrow's error where the folder was made during the call
            return list(self.filesystem.get_file_info(there))

    def delta(self, path: str, *, version: int | None = None) -> DeltaTable:
        """The Delta table at `path`, at its newest version or an older one.

        Raises: deltalake's TableNotFoundError, and DeltaError for one that does not open;
        StateError(STATE_TABLE_CORRUPT) for an empty commit, which a power failure leaves behind: it would be read as a
        commit that changes nothing.
        """
        for info in self.listed(path, "_delta_log"):
            if info.extension == "json" and not info.size:
                raise corrupt(self.uri(path), f"the empty commit {info.base_name}")
        return DeltaTable(self.uri(path), version=version, storage_options=self._delta_options)

    def create_delta(
        self,
        path: str,
        schema: pa.Schema,
        *,
        configuration: Mapping[str, str],
        partition_by: Sequence[str] = (),
    ) -> DeltaTable:
        """A new Delta table.

        Raises: deltalake's DeltaError when there is one; StateError(STATE_PATH_INVALID) where other files are.
        """
        others = [info for info in self.listed(path) if info.base_name != "_delta_log"]
        if others:
            raise self._invalid(path, f"{len(others)} files and no Delta table that they belong to")
        table = DeltaTable.create(
            self.uri(path),
            schema,
            partition_by=list(partition_by) or None,
            configuration=dict(configuration),
            storage_options=self._delta_options,
        )
        names = path.split("/")
        for depth in range(len(names) + 1):
            self.sync(*names[:depth])
        return table

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
        """Rows of some files of the Delta table at `table_path`, by path: files never change.

        `schema` names at least the columns that are returned or in `wanted`; row groups without wanted rows are
        skipped. A column that a file lacks has its fill, or is null; none of these may be in `wanted`.
        Raises: StateError(STATE_TABLE_CORRUPT) when one is gone, or no Parquet.
        """
        names = schema.names if columns is None else list(columns)
        if not files:
            return schema.empty_table().select(names)
        with self.reading(table_path):
            source = self._dataset(table_path, files, schema)
            if fills.keys().isdisjoint(names):
                return source.to_table(columns=names, filter=wanted)
            parts = filled(source, schema, fills, columns=names, filter=wanted)
            return pa.concat_tables([schema.empty_table().select(names), *parts])

    def read_parquet_parts(
        self,
        table_path: str,
        files: Sequence[str],
        schema: pa.Schema,
        *,
        wanted: pc.Expression,
        part_bytes: int,
        fills: Fills = NO_FILLS,
    ) -> Iterator[pa.Table]:
        """Rows as of `read_parquet`, with its errors, in parts of about `part_bytes`, one of which is in memory."""
        slowly = {"batch_size": _BATCH_ROWS, "batch_readahead": 1, "fragment_readahead": 1}
        with self.reading(table_path):
            source = self._dataset(table_path, files, schema)
            yield from filled(source, schema, fills, part_bytes, filter=wanted, **slowly)

    def _dataset(self, table_path: str, files: Sequence[str], schema: pa.Schema) -> ds.Dataset:
        paths = [self.path(table_path, file) for file in files]
        return ds.dataset(paths, schema=schema, format="parquet", filesystem=self.filesystem)

    @contextmanager
    def reading(self, table_path: str) -> Iterator[None]:
        """Raise StateError(STATE_TABLE_CORRUPT) for a file of the table that is gone, or no Parquet."""
        try:
            yield
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            found = f"a file that can't be read ({type(error).__name__})"
            raise corrupt(self.uri(table_path), found) from error

    def write_parquet(
        self,
        table_path: str,
        table: pa.Table,
        *,
        stem: str,
        bound_columns: tuple[str, ...] = (),
        row_group_rows: int = 65_536,
    ) -> DataFile:
        """Write rows as a new file of the Delta table at `table_path`. It belongs to the table once committed."""
        buffer = io.BytesIO()
        pq.write_table(
            table, buffer, compression="zstd", row_group_size=row_group_rows, store_decimal_as_integer=True
        )
        name = f"{stem}-{uuid.uuid4().hex[:12]}.parquet"
        with self.filesystem.open_output_stream(self.path(table_path, name)) as out:
            out.write(buffer.getbuffer())
        self.sync(table_path, name)
        bounds = {}
        for column in bound_columns if table.num_rows else ():
            span = pc.min_max(table[column]).as_py()
            bounds[column] = (span["min"], span["max"])
        return DataFile(name, buffer.tell(), table.num_rows, bounds)

    def write_parquet_parts(
        self,
        table_path: str,
        parts: Iterable[pa.Table],
        schema: pa.Schema,
        *,
        stem: str,
        bounds: Mapping[str, tuple[Any, Any]],
        row_group_rows: int,
    ) -> DataFile:
        """Write rows in parts as one new file, with one part in memory. `bounds` are those of all rows."""
        name, rows = f"{stem}-{uuid.uuid4().hex[:12]}.parquet", 0
        with self.filesystem.open_output_stream(self.path(table_path, name)) as out:
            with pq.ParquetWriter(out, schema, compression="zstd", store_decimal_as_integer=True) as writer:
                for part in parts:
                    writer.write_table(part, row_group_size=row_group_rows)
                    rows += part.num_rows
            size = out.tell()
        self.sync(table_path, name)
        return DataFile(name, size, rows, dict(bounds))


def corrupt(where: str, found: str) -> StateError:
    """The error for a table of the state that can't be read."""
    return StateError(Code.STATE_TABLE_CORRUPT, where=where, found=found)


def now_ms() -> int:
    """The wall clock in Unix milliseconds, for people and the age of files: no order follows from it."""
    return time.time_ns() // 1_000_000
