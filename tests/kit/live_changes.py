"""Changes of which only the places and keys matter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import OFFSET, PARTITION
from streaming.source.decoded import Changes


def live_changes(
    vnodes: npt.NDArray[np.int32], keys: Sequence[pa.Array], partitions: npt.NDArray[np.int32]
) -> Changes:
    """Their offsets are the numbers from 0 on."""
    count = len(vnodes)
    return Changes(
        interval=np.zeros(count, np.int64),
        vnodes=vnodes,
        ops=np.zeros(count, np.int8),
        before=(),
        after=(),
        keys=tuple(keys),
        rows=pa.table({PARTITION: partitions, OFFSET: np.arange(count, dtype=np.int64)}),
    )
