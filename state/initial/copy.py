"""The copy of a table into a new replica: in two passes, part by part, each part remembered by the commit that has it.

    copy    parts of the table  ──▶  files of the log, as INSERTs at epoch 0: before every barrier, seen by no reader
    sort    all of them, by vnode and key  ──▶  files of the base, which is then complete up to epoch 0
    end     the files leave the log, in the commit that marks the copy as done

What is done follows from the tables alone, so an interrupted copy goes on with the next part. Afterwards the base is in
the same state as after a compaction to epoch 0, and nothing else treats it differently.

The sort finds keys that two rows have: no two parts have met before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from schemas.errors import Code, ConfigError
from schemas.table import TableSchema
from state.columns import VNODE, as_inserts, in_parts, log_schema
from state.initial.chunks import vnodes_of
from state.initial.start import ALL, CopyProgress, progress_of, staged
from state.initial.table import SourcePart, SourceTable
from state.maintenance.compaction import CompactionPart, CompactionResult, parts_of
from state.replica import Replica, ReplicaFiles, write_log_file
from state.storage import DataFile, Storage
from state.values.arrays import arrays, invalid_values

BYTES_PER_FILE = 32 << 20
"""Arrow bytes of rows that a part holds at a time, and of the file that it makes of them."""
_BEFORE_ALL = -1
"""The epoch before that of the copied rows, which is 0."""


@dataclass(frozen=True)
class CopyPart:
    """A part of the table to be copied. A value that is pickled to the worker that does it."""

    storage: Storage
    table: TableSchema
    source: SourcePart
    number: int


@dataclass(frozen=True, slots=True)
class CopiedPart:
    """Files that hold the rows of a part; none where it has invalid rows, or files that can't be read.

    `keyless` counts rows with a null in the key, `invalid` values that their column's type can't hold, by code, column
    and text. Errors travel as values: of an exception in a worker, Spark tells the driver only that the job failed.
    """

    number: int
    files: tuple[DataFile, ...] = ()
    keyless: int = 0
    invalid: Mapping[tuple[Code, str, str], int] = field(default_factory=dict)
    unreadable: str | None = None


def copy_part(part: CopyPart) -> CopiedPart:
    """Copy one part, in bounded memory. Raises: OSError when no file can be written."""
    files: list[DataFile] = []
    keyless, invalid = 0, Counter[tuple[Code, str, str]]()
    pieces = in_parts(part.source.read(part.table), BYTES_PER_FILE)
    rows = (piece for piece in pieces if piece.num_rows)
    while True:
        try:
            piece = next(rows, None)
        except (OSError, DeltaError, pa.ArrowException, ValueError) as error:
            return CopiedPart(part.number, unreadable=type(error).__name__)
        if piece is None:
            break
        keyless += _without_key(piece, part.table)
        invalid += _invalid(piece, part.table)
        if not keyless and not invalid:
            # Rows of a vnode are next to each other in the log.
            inserts = as_inserts(piece, vnodes_of(piece, part.table), 0, log_schema(part.table))
            files.append(write_log_file(part.storage, inserts.sort_by(VNODE), f"copy-{part.number:06d}"))
    return CopiedPart(part.number, () if keyless or invalid else tuple(files), keyless, invalid)


def _without_key(rows: pa.Table, table: TableSchema) -> int:
    missing = np.zeros(rows.num_rows, dtype=np.bool_)
    for column in arrays(rows, table.primary_key):
        missing |= column.is_null().to_numpy(zero_copy_only=False)
    return int(missing.sum())


def _invalid(rows: pa.Table, table: TableSchema) -> Counter[tuple[Code, str, str]]:
    counts = Counter[tuple[Code, str, str]]()
    for column, values in zip(table.columns, arrays(rows, table.column_names), strict=True):
        if (found := invalid_values(values, column)) is not None:
            counts[found.code, column.name, found.text] += len(found.rows)
    return counts


class TableCopy:
    """A copy under way: get the next parts, run them anywhere, and commit their results.

    One writer: that of the replica, before its first batch. Raises, from every commit: CommitConflict.
    """

    def __init__(self, replica: Replica, source: SourceTable, most_rows: int) -> None:
        self._replica, self._source, self._most_rows = replica, source, most_rows

    @property
    def progress(self) -> CopyProgress | None:
        """None once it is done."""
        return progress_of(self._replica, self._source.rows)

    @cached_property
    def _parts(self) -> list[SourcePart]:
        return self._source.parts(self._most_rows)

    def to_copy(self, most: int) -> list[CopyPart]:
        """The next parts of the first pass, at most `most`; none when it is over."""
        replica = self._replica
        done = replica.log.copied
        return [
            CopyPart(replica.storage, replica.table, source, done + number)
            for number, source in enumerate(self._parts[done : done + most])
        ]

    def commit_copied(self, parts: Sequence[CopiedPart]) -> None:
        """Commit the results of all parts from `to_copy`.

        Raises: ConfigError(INITIAL_TABLE_UNREADABLE, INITIAL_KEY_NULL, VALUE_OUT_OF_RANGE, BAD_ENCODING). Counts are
        those of these parts.
        """
        for part in parts:
            if part.unreadable is not None:
                found = f"files that can't be read ({part.unreadable})"
                raise self._fault(Code.INITIAL_TABLE_UNREADABLE, found)
        if keyless := sum(part.keyless for part in parts):
            raise self._fault(Code.INITIAL_KEY_NULL, f"{keyless} rows with a null in the primary key")
        for (code, column, text), count in sum((Counter(part.invalid) for part in parts), Counter()).items():
            raise self._source.invalid(code, column, text, count)
        files = [file for part in sorted(parts, key=lambda each: each.number) for file in part.files]
        log = self._replica.log
        log.commit(files, epoch=None, copied=log.copied + len(parts))

    @cached_property
    def _sort_parts(self) -> list[CompactionPart]:
        replica = self._replica
        files = ReplicaFiles(_BEFORE_ALL, {}, tuple(staged(replica)))
        return parts_of(replica.storage, replica.table, files)

    def to_sort(self, most: int) -> list[CompactionPart]:
        """The next parts of the second pass, once the first is over; none when it is over as well."""
        done = self._replica.base.copied
        return self._sort_parts[done : done + most]

    def commit_sorted(self, parts: int, result: CompactionResult) -> None:
        """Commit the result of `parts` parts from `to_sort`. Raises: ConfigError(INITIAL_KEY_DUPLICATE)."""
        if twice := result.rows_read - sum(file.rows for file in result.added):
            raise self._fault(Code.INITIAL_KEY_DUPLICATE, f"{twice} rows with the primary key of another one")
        base = self._replica.base
        base.commit(result.added, epoch=None, copied=base.copied + parts)

    def commit_end(self) -> None:
        """Remove the copied files from the log, after both passes."""
        self._replica.log.commit([], staged(self._replica), epoch=None, copied=ALL)

    def _fault(self, code: Code, found: str) -> ConfigError:
        return ConfigError(code, where=f"{self._source.uri}@{self._source.version}", found=found)
