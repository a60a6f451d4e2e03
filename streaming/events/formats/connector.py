"""The common part of test events of the format `debezium`, as the connector for PostgreSQL writes them.

The row before is as under its default replica identity: null, and the key columns in front of a delete. Each change is
a transaction of its own, whose place in the database's log is by the number of the change; so places rise in each
partition, in a later run as well.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.by_op import in_order, rows_by_op, take
from schemas.records import Op
from streaming.events.formats.protocol import Columns, Events, Ops, Records

CONNECTOR = "postgresql", "test"
"""The connector in the source of an event, and its name."""
TRANSACTION = 700
"""The transaction of the topic's first change."""
_LSN_ZERO, _LSN_STEP = 24_000_000, 56

Numbers = npt.NDArray[np.int64]


class ConnectorEvents(Events):
    """Events `c`, `u` and `d`, each `d` with its tombstone."""

    @property
    def needs_before(self) -> bool:
        return False

    def values(self, ops: Ops, before: Columns, after: Columns) -> pa.BinaryArray:
        """Up to the source of the event."""
        gone = rows_by_op(pa.array(ops)).get(Op.DELETE)
        if gone is None:
            return self._upserts(after)
        kept = np.flatnonzero(ops != Op.DELETE)
        groups = [(gone, self._deletes(take(after, gone)))]
        if len(kept):
            groups.append((kept, self._upserts(take(after, kept))))
        return in_order(groups, len(ops))

    def records(self, keys: pa.BinaryArray, values: pa.BinaryArray, ops: Ops, first: int) -> Records:
        events = self._events(values, ops, first)
        gone = ops == Op.DELETE
        if not gone.any():
            return Records(keys, events)
        rows = np.repeat(np.arange(len(ops)), 1 + gone)
        tombstones = np.zeros(len(rows), np.bool_)
        tombstones[1:] = rows[1:] == rows[:-1]
        return Records(keys.take(pa.array(rows)), events.take(pa.array(rows, mask=tombstones)))

    @abstractmethod
    def _upserts(self, rows: Columns) -> pa.BinaryArray:
        """The values of changes with a row after."""

    @abstractmethod
    def _deletes(self, rows: Columns) -> pa.BinaryArray:
        """The values of deletes, from their key columns."""

    @abstractmethod
    def _events(self, values: pa.BinaryArray, ops: Ops, first: int) -> pa.BinaryArray:
        """The values with the rest of their events."""


def places(first: int, count: int) -> tuple[Numbers, Numbers]:
    """The numbers of changes in their topic, and their places in the database's log."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    return numbers, _LSN_ZERO + numbers * _LSN_STEP
