"""A changelog that follows from the number of a batch alone: its changes, and the table that they leave.

So a player that goes on after a kill knows what the table has to hold, and nothing has to be remembered.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.records import Op
from schemas.table import declare
from state.columns import BEFORE_HASH, EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.vnode import row_hashes

KEYS, CHANGES = 20_000, 40
"""Of the table; of them a batch changes so many."""
EPOCH_STEP = 1_000 << 16
"""Of a second, as epochs count."""
TABLE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "n": "bigint", "note": "string"},
        "primary_key": ["id"],
        "vnode_count": 16,
    }
)

Numbers = npt.NDArray[np.int64]


def changed(number: int) -> Numbers:
    """The keys that a batch changes; the first one inserts all of them."""
    if number == 1:
        return np.arange(KEYS, dtype=np.int64)
    return np.random.default_rng(number).choice(KEYS, CHANGES, replace=False).astype(np.int64)


def end_of(number: int) -> int:
    """The end of a batch, behind its last change: its barrier has no record."""
    return KEYS + (number - 1) * CHANGES


def rows_of(keys: Numbers, numbers: Numbers) -> pa.Table:
    """Rows as the batches of these numbers have left them."""
    notes = pa.array([f"changed by {number}" for number in numbers.tolist()])
    return pa.table([keys, numbers, notes], names=TABLE.column_names)


def hashes_of(rows: pa.Table) -> Numbers:
    """The hashes of whole rows, equal to the replica's."""
    return row_hashes([column.combine_chunks() for column in rows.columns], TABLE.columns)


class Expected:
    """The batch that changed each key last."""

    def __init__(self) -> None:
        self._done, self.numbers = 0, np.zeros(KEYS, dtype=np.int64)
        keys = np.arange(KEYS, dtype=np.int64)
        self.vnodes = row_hashes([pa.array(keys)], TABLE.key_columns) % TABLE.vnode_count

    def after(self, number: int) -> Numbers:
        """Of each key, once a batch is done; only ever forwards."""
        for done in range(self._done + 1, number + 1):
            self.numbers[changed(done)] = done
        self._done = max(self._done, number)
        return self.numbers

    def changes(self, number: int) -> pa.Table:
        """The log rows of a batch: of the next one, or of a later one."""
        keys = changed(number)
        before = rows_of(keys, self.after(number - 1)[keys])
        count, is_new = len(keys), number == 1
        own = {
            VNODE: self.vnodes[keys].astype(np.int32),
            EPOCH: np.full(count, number * EPOCH_STEP),
            PARTITION: np.zeros(count, dtype=np.int32),
            OFFSET: end_of(number) - count + np.arange(count),
            OP: np.full(count, Op.INSERT if is_new else Op.UPDATE, dtype=np.int8),
            BEFORE_HASH: pa.nulls(count, pa.int64()) if is_new else hashes_of(before),
        }
        after = rows_of(keys, self.after(number)[keys])
        return pa.table({**own, **{name: after[name] for name in after.column_names}}).cast(log_schema(TABLE))
