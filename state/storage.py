"""Where durable state lives: a folder, or a URI that pyarrow and delta-rs both know (`s3://…`).

Everything below the root is an ordinary Delta table or Parquet file:

    replica/base, replica/log      the replica
    journal                        the plan of the open batch, and who owns the state
    progress                       one row per changed vnode and barrier
    spark_checkpoint               Structured Streaming's own
"""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a Delta table: path below the table's root, bytes, rows, true column bounds.

    `bounds` maps a column to its (minimum, maximum); leaving a column out is always allowed, a wrong bound
    never: readers believe statistics.
    """

    path: str
    size: int
    rows: int
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def statistics(self) -> str:
        """The `stats` field of a Delta add action."""
        low = {name: pair[0] for name, pair in self.bounds.items()}
        high = {name: pair[1] for name, pair in self.bounds.items()}
        return json.dumps({"numRecords": self.rows, "minValues": low, "maxValues": high})


@dataclass(frozen=True)
class Storage:
    """The root of the state. Cheap to make and to pickle: lanes build their own filesystem from it.

    Everything durable but Spark's own checkpoint is read and written through here.
    """

    root: str

    def __post_init__(self) -> None:
        if "://" not in self.root:
            object.__setattr__(self, "root", str(Path(self.root).resolve()))

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "root", state["root"])

    def uri(self, *parts: str) -> str:
        """Where delta-rs and Spark find a thing."""
        return "/".join((self.root.rstrip("/"), *parts))

    @cached_property
    def _resolved(self) -> tuple[fs.FileSystem, str]:
        filesystem, path = fs.FileSystem.from_uri(
            self.root if "://" in self.root else Path(self.root).as_uri()
        )
        return filesystem, path.rstrip("/")

    @property
    def filesystem(self) -> fs.FileSystem:
        """The view of it that pyarrow has."""
        return self._resolved[0]

    def path(self, *parts: str) -> str:
        """Where `filesystem` finds a thing."""
        return "/".join((self._resolved[1], *parts))

    def exists(self, *parts: str) -> bool:
        """Whether a file or folder is there."""
        info = self.filesystem.get_file_info(self.path(*parts))
        return bool(info.type != fs.FileType.NotFound)

    def delta(self, path: str, *, version: int | None = None) -> DeltaTable:
        """The Delta table at `path`, at its newest version or an older one.

        Raises: deltalake's TableNotFoundError, and DeltaError for one that does not open.
        """
        return DeltaTable(self.uri(path), version=version)

    def create_delta(
        self,
        path: str,
        schema: pa.Schema,
        *,
        configuration: Mapping[str, str],
        partition_by: Sequence[str] = (),
    ) -> DeltaTable:
        """A new Delta table. Raises: deltalake's DeltaError when there is one."""
        return DeltaTable.create(
            self.uri(path),
            schema,
            partition_by=list(partition_by) or None,
            configuration=dict(configuration),
        )

    def read_parquet(
        self,
        table_path: str,
        files: Sequence[str],
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        wanted: pc.Expression | None = None,
    ) -> pa.Table:
        """Rows of some files of the Delta table at `table_path`, by path: files never change.

        `schema` names at least the columns that are returned or asked about; row groups that hold nothing `wanted`
        are skipped.
        """
        if not files:
            return schema.empty_table().select(schema.names if columns is None else list(columns))
        paths = [self.path(table_path, file) for file in files]
        source = ds.dataset(paths, schema=schema, format="parquet", filesystem=self.filesystem)
        return source.to_table(columns=None if columns is None else list(columns), filter=wanted)

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
        pq.write_table(table, buffer, compression="zstd", row_group_size=row_group_rows)
        name = f"{stem}-{uuid.uuid4().hex[:12]}.parquet"
        with self.filesystem.open_output_stream(self.path(table_path, name)) as out:
            out.write(buffer.getbuffer())
        bounds = {}
        for column in bound_columns if table.num_rows else ():
            span = pc.min_max(table[column]).as_py()
            bounds[column] = (span["min"], span["max"])
        return DataFile(name, buffer.tell(), table.num_rows, bounds)


def now_ms() -> int:
    """The wall clock for file times; nothing is decided by it."""
    return time.time_ns() // 1_000_000
