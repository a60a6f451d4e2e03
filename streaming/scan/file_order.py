"""The base files of a vnode in key order: which of them a range of keys is in, without opening one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from schemas.position import Key
from schemas.table import TableSchema
from state.maintenance.compaction_rows import last_key
from state.replica import BaseFile
from state.storage import Storage
from state.values.order import at_most, sort_order


@dataclass(frozen=True)
class FileOrder:
    """n files, disjoint in key and in its order, none of them empty; `last_keys` are n rows of the key columns."""

    files: tuple[BaseFile, ...]
    last_keys: tuple[pa.Array, ...]

    @classmethod
    def of(cls, files: Sequence[BaseFile], storage: Storage, table: TableSchema) -> FileOrder:
        """Reads the end of each file. Raises: StateError when one is gone."""
        lasts = [last_key(storage, table, file) for file in files]
        columns = [
            pa.array([key[number] for key in lasts], type=column.type.arrow)
            for number, column in enumerate(table.key_columns)
        ]
        order = sort_order(columns)
        return cls(
            tuple(files[i] for i in order.to_pylist()), tuple(column.take(order) for column in columns)
        )

    def begin(self, after: Key | None) -> int:
        """The number of the first file that has keys behind `after` (None: −∞); n if none has."""
        return 0 if after is None else int(np.count_nonzero(at_most(self.last_keys, after)))

    def of_range(self, after: Key | None, upto: Key | None) -> tuple[BaseFile, ...]:
        """All files that may have keys in (after, upto]; None is −∞ and +∞."""
        end = len(self.files) if upto is None else self.begin(upto) + 1
        return self.files[self.begin(after) : end]
