"""The progress of a table's copy, from the replica alone. It imports no numpy: `status` asks it."""

from __future__ import annotations

from dataclasses import dataclass

from state.columns import EPOCH
from state.replica import LOG_BOUNDS, Replica
from state.storage import DataFile

ALL = (1 << 62) - 1
"""The log's mark `copied` once everything is copied."""


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Rows that were copied, and of these sorted into the base; `of` is how many there are, None where unknown."""

    copied: int
    sorted: int
    of: int | None


def progress_of(replica: Replica, of: int | None) -> CopyProgress | None:
    """The progress of the copy into a replica; None once it is done."""
    if replica.log.copied == ALL:
        return None
    sorted_ = sum(file.rows for file in replica.base.files())
    return CopyProgress(sum(file.rows for file in staged(replica)), sorted_, of)


def staged(replica: Replica) -> list[DataFile]:
    """Files of the log with rows that were copied and wait to be sorted, or were."""
    return [file for file in replica.log.files(LOG_BOUNDS) if file.bounds[EPOCH][1] == 0]
