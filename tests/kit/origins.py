"""Where rows come from, for encoders that are called without a lane."""

from __future__ import annotations

import numpy as np

from schemas.formats.protocol import Origin, Origins
from schemas.records import Barrier, BarrierKind

BARRIER = Barrier(2 << 16, 1 << 16, BarrierKind.BARRIER, 1, 1_700_000_000_123)
ORIGIN = Origin("copy", "t", 3, BARRIER)


def origins(count: int) -> Origins:
    """That many times `ORIGIN`."""
    parts, intervals = np.full(count, ORIGIN.part, np.int32), np.zeros(count, np.int64)
    return Origins(ORIGIN.job, ORIGIN.table, parts, intervals, [ORIGIN.barrier])
