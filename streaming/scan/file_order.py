"""The base files of a vnode in key order: which of them a range of keys is in, without opening one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from schemas.position import Key
from state.replica import BaseFile
from state.values.order import at_most, sort_order


@dataclass(frozen=True)
class FileOrder:
    """n files, disjoint in key and in its order, none of them empty; `last_keys` are n rows of the key columns."""

    files: tuple[BaseFile, ...]
    last_keys: tuple[pa.Array, ...]

    @classmethod
    def of(cls, files: Sequence[BaseFile], keys_of: Callable[[BaseFile], Sequence[pa.Array]]) -> FileOrder:
        """`keys_of` gives the key columns of a file, in key order; it is called once for each."""
        lasts = [[column.take([len(column) - 1]) for column in keys_of(file)] for file in files]
        columns = [pa.concat_arrays(column) for column in zip(*lasts, strict=True)]
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
