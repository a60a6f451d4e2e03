"""The registry of scans: the implementation of each kind that a job can name.

A new kind is a model in `schemas.kinds.scans` and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from schemas.job import JobDefinition
from schemas.kinds import scans as kinds
from schemas.kinds.scans import ScanConfig
from state.replica import Replica
from state.values.pin import Pin
from state.values.plan import BatchPlan
from streaming.core.planning import CutFunction
from streaming.scan.arrangement import Arrangement
from streaming.scan.protocol import PinnedScan, Scan
from streaming.scan.topic import SourceBackfill, UpstreamLog


@dataclass(frozen=True)
class Sources:
    """The sources of scans. `log` is None outside a service: commands have the replica alone."""

    replica: Replica
    log: UpstreamLog | None = None


def _topic_scan(_: object, sources: Sources) -> Scan:
    assert sources.log is not None, "only a service reads its upstream"
    return SourceBackfill(sources.log)


SCANS: dict[type[ScanConfig], Callable[[Any, Sources], Scan]] = {
    kinds.ReplicaScan: lambda _, sources: Arrangement(sources.replica),
    kinds.TopicScan: _topic_scan,
}
"""By its model, an instance of which is the first argument."""


class Scans:
    """The scans of a service: one for each that its jobs name, made on its first use."""

    def __init__(self, replica: Replica, log: UpstreamLog | None = None) -> None:
        self._sources = Sources(replica, log)
        self._scans: dict[ScanConfig, Scan] = {}

    def scan_for(self, job: JobDefinition) -> Scan:
        """The scan that the job names, made on its first use."""
        config = job.scan
        if config not in self._scans:
            self._scans[config] = SCANS[type(config)](config, self._sources)
        return self._scans[config]

    def cut_of(self, pin: Pin) -> Callable[[JobDefinition], CutFunction]:
        """The function that gives, for a job, its `CutFunction` at this pin."""
        return lambda job: partial(self.scan_for(job).cut, pin)

    def pinned(self, plan: BatchPlan) -> Mapping[ScanConfig, PinnedScan]:
        """Each scan of the plan's jobs, pinned for the parts that lanes are to read.

        Raises: StateError when pinned files are gone.
        """
        scans = {job.state.definition.scan: self.scan_for(job.state.definition) for job in plan.jobs}
        parts: dict[ScanConfig, set[int]] = {config: set() for config in scans}
        for job in plan.sent_jobs:
            parts[job.state.definition.scan].update(item.part for item in job.slices)
        return {config: scan.pinned(plan.pin, frozenset(parts[config])) for config, scan in scans.items()}
