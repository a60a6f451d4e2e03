"""Origins of rows, for encoders that are called without a lane."""

from __future__ import annotations

import numpy as np

from schemas.formats.protocol import Origins
from schemas.records import Barrier, BarrierKind

BARRIER = Barrier(2 << 16, 1 << 16, BarrierKind.BARRIER, 1, 1_700_000_000_123)


def origins(count: int) -> Origins:
    """Origins of that many rows of one part and interval."""
    return origins_at(BARRIER, count=count)


def origins_at(
    barrier: Barrier, job: str = "copy", table: str = "t", part: int = 3, count: int = 1
) -> Origins:
    """Rows of a part in the interval that a barrier closes."""
    return Origins(job, table, np.full(count, part, np.int32), np.zeros(count, np.int64), [barrier])
