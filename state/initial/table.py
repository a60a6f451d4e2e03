"""The Delta table that a replica starts from: one version of it, checked, cut into parts, and read.

It is not the service's own table, so everything about it is checked. It is read as the state itself is, with delta-rs
and Arrow, whose options (such as credentials of an object store) come from the environment.

Where files do not hold the rows as they are (deletion vectors, mapped columns), delta-rs reads the table as a whole. It
then reads INT96, which Spark writes, as nanoseconds, and a timestamp after the year 2262 silently becomes another one;
so such a table is refused if a declared column is a timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from schemas.error_table import TABLE
from schemas.errors import Code, ConfigError
from schemas.kinds.initial import DeltaStart
from schemas.table import TableSchema, nearest
from schemas.types import TypeName
from state.object_store import delta_options
from state.values.arrays import invalid_values

BYTES_PER_PART = 128 << 20
"""Of Parquet, about: some seconds' work of a core."""
_BATCH_ROWS = 4_096
_DELTA_NAMES = {TypeName.INT: "integer", TypeName.BIGINT: "long"}
"""Types whose name in Delta's schema is not the declared one."""
_BY_FILE = frozenset({"timestampNtz"})
"""Reader features of Delta with which the rows are still those that the files have."""


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Some files of the table: [first, end) in the order of paths; None: the table is read as a whole."""

    uri: str
    version: int
    files: tuple[int, int] | None

    def read(self, table: TableSchema) -> Iterator[pa.Table]:
        """The declared columns, in their Arrow types, some thousand rows at a time.

        Raises: OSError, DeltaError, pa.ArrowInvalid for what can't be read.
        """
        names = list(table.column_names)
        schema = pa.schema([(column.name, column.type.arrow) for column in table.columns])
        source = _opened(self.uri, self.version)
        for batch in _whole(source, names) if self.files is None else _of_files(source, names, *self.files):
            read = pa.Table.from_batches([batch]).select(names)
            yield read.cast(schema)


def _whole(source: DeltaTable, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in pa.RecordBatchReader.from_stream(source.scan(columns=list(names))):
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS)


def _of_files(source: DeltaTable, names: Sequence[str], first: int, end: int) -> Iterator[pa.RecordBatch]:
    """Some of the files, in the order of their paths, which is the same for one version everywhere."""
    schema = pa.schema(source.schema().to_arrow())
    # Spark writes timestamps as INT96, whose nanoseconds do not reach to the year 2300. Without a column in the schema
    # its statistics are not read: nothing here needs them, and delta-rs fails at days beyond the year 9999.
    partitioned = [schema.field(name) for name in source.metadata().partition_columns]
    dataset = source.to_pyarrow_dataset(
        schema=pa.schema(partitioned),
        parquet_read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"),
    )
    for fragment in sorted(dataset.get_fragments(), key=lambda fragment: fragment.path)[first:end]:
        yield from fragment.to_batches(
            schema=schema, columns=list(names), batch_size=_BATCH_ROWS, batch_readahead=1
        )


class SourceTable:
    """The table, opened. `rows` and `size` (bytes of Parquet) come from its log; `rows` is None where it has none."""

    def __init__(self, uri: str, version: int) -> None:
        """Raises: ConfigError(INITIAL_TABLE_MISSING, INITIAL_VERSION_MISSING, INITIAL_TABLE_UNREADABLE)."""
        self.uri, self.version = uri, version
        try:
            newest = _opened(uri, None)
            last = newest.version()
            self._source = newest if last == version else _at(uri, version, last)
        except (TableNotFoundError, OSError, ValueError) as error:
            found = f"no Delta table that can be opened ({type(error).__name__})"
            raise ConfigError(Code.INITIAL_TABLE_MISSING, where=uri, found=found) from error
        except DeltaError as error:
            found = f"a Delta table that can't be read ({type(error).__name__})"
            raise ConfigError(Code.INITIAL_TABLE_UNREADABLE, where=uri, found=found) from error
        actions = pa.table(self._source.get_add_actions(flatten=True)).select(
            ["path", "size_bytes", "num_records"]
        )
        self._files = sorted(
            zip(*(actions[name].to_pylist() for name in actions.column_names), strict=True),
            key=lambda file: unquote(file[0]),
        )

    @property
    def rows(self) -> int | None:
        """Rows of its files, those included that a deletion vector deletes; None if the log lacks counts."""
        counts = [rows for _, _, rows in self._files]
        return None if None in counts else sum(counts)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(size for _, size, _ in self._files)

    def columns_of(self, table: TableSchema) -> TableSchema:
        """The table as it was at the start: in the types of then, and without the columns that came later.

        These are those that this one lacks, and that may be null, and those that were not read.
        """
        names = {field.name for field in self._source.schema().fields}
        columns = (
            each.at(0)
            for each in table.columns
            if not each.nullable or (each.name in names and not each.is_incomplete)
        )
        return replace(table, columns=tuple(columns))

    def further(self, table: TableSchema) -> tuple[str, ...]:
        """The names of its columns that are not read."""
        names = (field.name for field in self._source.schema().fields)
        return tuple(name for name in names if name not in table.by_name)

    def check(self, table: TableSchema) -> None:
        """Check that it has the declared columns; others are ignored.

        Raises: ConfigError(INITIAL_TABLE_MISFIT); of values that files are partitioned by: VALUE_OUT_OF_RANGE.
        """
        types = {
            field.name: str(getattr(field.type, "type", "nested")) for field in self._source.schema().fields
        }
        faults = []
        for column in table.columns:
            found, wanted = types.get(column.name), _DELTA_NAMES.get(column.type.name, str(column.type))
            if found is None:
                faults.append(f"no column {column.name!r}{nearest(column.name, list(types))}")
            elif found != wanted:
                faults.append(f"column {column.name!r} of type {found} for {column.type}")
            elif column.type.name is TypeName.TIMESTAMP and not self._is_by_file:
                faults.append(
                    f"timestamps in {column.name!r}, and deletion vectors or mapped columns beside them"
                )
        if faults:
            where = f"{self.uri}@{self.version}"
            raise ConfigError(Code.INITIAL_TABLE_MISFIT, where=where, found="; ".join(faults))
        self._check_partitions(table)

    def _check_partitions(self, table: TableSchema) -> None:
        """Values that files are partitioned by, which delta-rs could not read with them."""
        actions = pa.table(self._source.get_add_actions(flatten=True))
        for column in table.columns:
            name = f"partition.{column.name}"
            if name not in actions.column_names:
                continue
            values = actions[name].combine_chunks().cast(column.type.arrow)
            if (found := invalid_values(values, column)) is not None:
                counts = [actions["num_records"][int(row)].as_py() or 1 for row in found.rows]
                raise self.invalid(found.code, column.name, found.text, sum(counts))

    def invalid(self, code: Code, column: str, text: str, count: int) -> ConfigError:
        """The error for values that a column's type can't hold; `text` describes one of them."""
        return ConfigError(
            code,
            where=f"{self.uri}@{self.version}",
            found=f"{text} in column {column}, {count:,} of them",
            next_step=TABLE[Code.INITIAL_KEY_NULL].next_step,
            column=column,
        )

    @cached_property
    def _is_by_file(self) -> bool:
        mode = self._source.metadata().configuration.get("delta.columnMapping.mode", "none")
        features = set(self._source.protocol().reader_features or ())
        return mode == "none" and features <= _BY_FILE

    def parts(self, most_rows: int) -> list[SourcePart]:
        """The whole version, in parts of about so many rows, and `BYTES_PER_PART`: the same ones for each call."""
        if not self._is_by_file:
            return [SourcePart(self.uri, self.version, None)]
        ends, rows, size = [0], 0, 0
        for number, (_, of_file, counted) in enumerate(self._files, start=1):
            rows, size = rows + (counted or 0), size + of_file
            if rows >= most_rows or size >= BYTES_PER_PART or number == len(self._files):
                ends.append(number)
                rows = size = 0
        return [SourcePart(self.uri, self.version, files) for files in pairwise(ends)]


def checked_table(declared: DeltaStart, table: TableSchema) -> SourceTable:
    """The declared table. Raises: ConfigError, as `SourceTable` and its `check`."""
    source = SourceTable(declared.uri, declared.version)
    source.check(table)
    return source


def _opened(uri: str, version: int | None) -> DeltaTable:
    return DeltaTable(uri, version=version, storage_options=delta_options(uri))


def _at(uri: str, version: int, last: int) -> DeltaTable:
    try:
        return _opened(uri, version)
    except DeltaError as error:
        found = f"a table whose newest version is {last}"
        where = f"{uri}@{version}"
        raise ConfigError(Code.INITIAL_VERSION_MISSING, where=where, found=found, version=version) from error
