"""A batch of a service, as the line of its log says it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

OUTPUT = "bench-copy"
"""The job that is measured, and its output, where a case has no other name for it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch from the service's log. `at` is Unix seconds of its end; `fields` the line's."""

    at: float
    fields: Mapping[str, Any]

    @property
    def took_ms(self) -> float:
        """All steps together."""
        return sum(self.step_ms.values())

    @property
    def step_ms(self) -> dict[str, float]:
        """By name, in their order."""
        return {key[:-3]: float(value) for key, value in self.fields.items() if key.endswith("_ms")}

    @property
    def snapshot_rows(self) -> int:
        """Rows that its slices read."""
        return int(self.fields["snapshot_rows"])

    @property
    def changes(self) -> int:
        """Upstream changes; of an interval that went in parts those of the last one."""
        return int(self.fields["changes"])

    @property
    def upstream_records(self) -> int:
        """Offsets of the upstream that are behind this batch and all before it."""
        return int(self.fields["upstream_records"])

    @property
    def epoch(self) -> int:
        """The last of its barriers."""
        return int(self.fields["epoch"])

    def completes(self, job: str = OUTPUT) -> bool:
        """True if the job's backfill is complete after it."""
        return bool(self.fields.get(f"vnodes_done.{job}") == self.fields["vnodes"])


def all_complete(names: Collection[str]) -> Callable[[Batch], bool]:
    """True if the backfills of all these jobs are complete after a batch."""
    return lambda batch: all(map(batch.completes, names))


def reads_snapshot(batch: Batch) -> bool:
    """True if a slice is part of the batch."""
    return batch.snapshot_rows > 0
