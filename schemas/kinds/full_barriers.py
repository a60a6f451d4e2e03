"""Full barriers: those of a barrier topic at which a reader may begin, as they list all parts of their partition.

Which barriers of an output are full follows from the upstream's barriers alone (`begins_period`): all outputs and all
partitions have the same ones, however intervals were put into batches, and a batch that is repeated sends equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.avro.codec import MAX_BARRIER_BYTES
from schemas.job import JobDefinition
from schemas.records import Barrier
from schemas.settings.limits import HEADROOM_BYTES, Limits
from schemas.table import Column
from schemas.types import TypeName

PERIOD_MS = 1_800_000
"""Half an hour, so that two full barriers are never more than an hour apart where barriers come often enough."""
_ENTRY_BYTES = 128
"""Bytes of a part in `progress`: names, number, count, commas, and the brackets of its position."""
_LONGEST_BYTES = {TypeName.STRING: 2_048}
"""Bytes of a key column in a position. A text may be longer (its bytes, up to seven for one that has to be escaped)."""
_OTHER_BYTES = 48


def begins_period(before: Barrier, barrier: Barrier) -> bool:
    """True if a barrier is the first of its period, by its own `injected_at`; `before` precedes it."""
    return before.injected_at_ms // PERIOD_MS != barrier.injected_at_ms // PERIOD_MS


def barrier_topic_bytes(job: JobDefinition, key_columns: Iterable[Column], limits: Limits) -> int:
    """`max.message.bytes` that a job's barrier topic needs; no full barrier is longer than that.

    It follows from the parts of an output partition and the longest position that `key_columns` make.
    """
    position_bytes = sum(_LONGEST_BYTES.get(column.type.name, _OTHER_BYTES) for column in key_columns)
    parts = -(-job.part_count // job.output_partitions)
    return max(
        limits.message_bytes, min(parts * (_ENTRY_BYTES + position_bytes), MAX_BARRIER_BYTES) + HEADROOM_BYTES
    )
