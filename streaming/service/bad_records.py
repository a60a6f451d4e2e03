"""What becomes of upstream records at fault: left out because an operator named them, parked, or the service stops.

Whatever is decided is part of the plan in the journal before it has an effect. Lanes that have sent their part found
nothing wrong with theirs, so a plan without the records that others found changes nothing for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from schemas.errors import Code, InputError
from schemas.job import JobDefinition
from state.plan import BatchPlan, Parked
from streaming.lane.faults import Fault

MOST_PARKED = 10_000
"""In one batch: a producer that gets everything wrong is to be stopped, not to be copied."""
_UNPARKED = (
    "it can't be parked: no job is open, too many are at fault, it is too large, or marked as a barrier"
)

_NEVER_PARKED = (Code.RECORD_TOO_LARGE, Code.AMBIGUOUS_RECORD)
"""A letter is longer than its record, so one that is too long can't be sent anywhere; and who marks records as barriers
has to be stopped."""

log = structlog.get_logger(__name__)


class BadRecords:
    """The policy for one topic. `ensure_letters` makes the topic for a job's dead letters; without it none is parked.

    `named` are records, (partition, offset), that may be left out should they be at fault.
    """

    def __init__(
        self,
        topic: str,
        named: frozenset[tuple[int, int]] = frozenset(),
        ensure_letters: Callable[[JobDefinition], None] | None = None,
    ) -> None:
        self._topic, self._named, self._ensure_letters = topic, named, ensure_letters

    def leave_out(self, plan: BatchPlan, found: Sequence[tuple[Fault, int]]) -> BatchPlan:
        """The plan without these records, each with the lane that found it; only what is at fault is ever left out.

        They are parked if that is wished and a job is there to have them; every other one must have been named.
        Raises: InputError for the first that was not.
        """
        found = sorted(found, key=lambda item: (item[0].partition, item[0].offset))
        parked = [Parked(f.partition, f.offset, f.code, lane) for f, lane in found if self._can_park(plan, f)]
        if len(plan.parked) + len(parked) > MOST_PARKED:
            parked = []
        letters = {(item.partition, item.offset) for item in parked}
        for fault, _ in found:
            place = fault.partition, fault.offset
            if place in letters:
                continue
            if place not in self._named:
                raise self._error(fault)
            log.warning("record_left_out", where=self._where(*place), code=fault.code)
        if parked:
            self._open_letters(plan, parked)
        skipped = {*plan.skipped, *((fault.partition, fault.offset) for fault, _ in found)}
        return replace(plan, skipped=tuple(sorted(skipped)), parked=(*plan.parked, *parked))

    def _can_park(self, plan: BatchPlan, fault: Fault) -> bool:
        parks = self._ensure_letters is not None and bool(plan.jobs)
        return parks and fault.code not in _NEVER_PARKED

    def _open_letters(self, plan: BatchPlan, parked: Sequence[Parked]) -> None:
        assert self._ensure_letters is not None
        for job in plan.jobs:
            self._ensure_letters(job.state.definition)
        codes = Counter(str(item.code) for item in parked)
        first = self._where(parked[0].partition, parked[0].offset)
        log.warning("records_parked", count=len(parked), first=first, codes=dict(codes))

    def _error(self, fault: Fault) -> InputError:
        unparked = "" if self._ensure_letters is None else f" ({_UNPARKED})"
        return InputError(
            fault.code,
            where=self._where(fault.partition, fault.offset),
            found=fault.found,
            expected=fault.expected,
            next_step=f"mend the producer; to leave this record out{unparked}, start with "
            f"--skip-record {fault.partition}@{fault.offset}",
        )

    def _where(self, partition: int, offset: int) -> str:
        return f"{self._topic}-{partition}@{offset}"
