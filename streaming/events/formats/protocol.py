"""The door for formats of test events. A reader needs nothing of theirs but the format's declaration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.records import Op

Ops = npt.NDArray[np.int8]
Columns = Sequence[pa.Array]


class Records(NamedTuple):
    """Keys and values side by side, as they are sent."""

    keys: pa.BinaryArray
    values: pa.BinaryArray


class Said(NamedTuple):
    """A record read back: its op, INSERT where it may be UPDATE as well, and what `Events.values` gave for it."""

    op: Op
    value: bytes


class Events(Protocol):
    """Writes changes of one table as records of one format. All arrays have at least one change."""

    @property
    def needs_before(self) -> bool:
        """Whether `values` looks at the rows before."""

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        """Record keys from the key columns in key order, one for each row."""

    def values(self, ops: Ops, before: Columns, after: Columns) -> pa.BinaryArray:
        """What depends on nothing but the change, one for each; null for a record without a value.

        Both halves come at full length; what `before` holds of an INSERT and `after` of a DELETE means nothing, but
        for the key columns of `after`, which are the change's.
        """

    def records(self, keys: pa.BinaryArray, values: pa.BinaryArray, ops: Ops, first: int) -> Records:
        """What is sent for changes of which `values` gave the values. The first is number `first` in its topic."""

    def said(self, value: bytes | None) -> Said | None:
        """What a record of `records` says, None for nothing new. Raises: ValueError for one that is none of them."""
