"""Policy for invalid upstream records: left out because an operator named them, parked, or the service stops.

A decision is part of the plan in the journal before it has an effect. Lanes that have sent their part found theirs
valid, so a plan without the records that others found changes nothing for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from schemas.errors import Code, InputError
from schemas.records import RecordId
from state.values.plan import BatchPlan, Parked
from streaming.lane.faults import Fault

MOST_PARKED = 10_000
"""In one batch: a producer whose every record is invalid has to be stopped, not copied to the dead letters."""
_UNPARKED = "it can't be parked: too many are at fault, it is too large, a barrier's mark or a truncate"

_NEVER_PARKED = (
    Code.RECORD_TOO_LARGE,
    Code.AMBIGUOUS_RECORD,
    Code.TRUNCATE_UNSUPPORTED,
    Code.SCHEMA_WAITS,
)
"""A letter is longer than its record, so one that is too long can't be sent anywhere; a producer that marks records as
barriers has to be stopped; a truncate is not about one row; a record with a new field is valid once it is declared."""

log = structlog.get_logger(__name__)


class BadRecords:
    """The policy for one topic. `parks`: invalid records go to the jobs' dead letters, without a job to the table's.

    `named` are records, (partition, offset), that may be left out if they are invalid. `is_wider` is true of a record
    that is valid once its table has the wider types of its schema, and is never parked.
    """

    def __init__(
        self,
        topic: str,
        named: frozenset[RecordId] = frozenset(),
        *,
        parks: bool = False,
        is_wider: Callable[[Fault], bool] = lambda fault: False,
    ) -> None:
        self.topic, self._named, self._parks, self._is_wider = topic, named, parks, is_wider

    def leave_out(self, plan: BatchPlan, found: Sequence[tuple[Fault, int]]) -> BatchPlan:
        """The plan without these invalid records, each with the lane that found it.

        They are parked if that is configured and they can be; every other one must have been named. Where only some
        were, those are left out first: the journal has a decision before the next one is asked for.
        Raises: InputError for the first that was not named, where none was.
        """
        # A record whose lane is not known comes to all of them; the first is to park it.
        by_id = {_id(fault): (fault, lane) for fault, lane in reversed(found)}
        found = [by_id[record] for record in sorted(by_id)]
        skipped = {*plan.skipped, *by_id}
        found = [(fault, lane) for fault, lane in found if not _was_left_out(plan, fault)]
        parked = [Parked(f.partition, f.offset, f.code, lane) for f, lane in found if self._can_park(f)]
        if len(plan.parked) + len(parked) > MOST_PARKED:
            parked = []
        letters = {(item.partition, item.offset) for item in parked}
        others = {record: fault for fault, _ in found if (record := _id(fault)) not in letters}
        named = {record: fault for record, fault in others.items() if record in self._named}
        unnamed = [fault for record, fault in others.items() if record not in named]
        if unnamed and not named:
            raise self._error(_first(plan, unnamed))
        for record, fault in named.items():
            log.warning("record_left_out", where=self._where(*record), code=fault.code)
        if unnamed:
            return replace(plan, skipped=tuple(sorted({*plan.skipped, *named})))
        if parked:
            self._log_parked(parked)
        return replace(plan, skipped=tuple(sorted(skipped)), parked=(*plan.parked, *parked))

    def _can_park(self, fault: Fault) -> bool:
        # A change that is too long for an output is one of a record that the dead letters take.
        may_park = fault.code not in _NEVER_PARKED or fault.output is not None
        return self._parks and may_park and not self._is_wider(fault)

    def _log_parked(self, parked: Sequence[Parked]) -> None:
        codes = Counter(str(item.code) for item in parked)
        first = self._where(parked[0].partition, parked[0].offset)
        log.warning("records_parked", count=len(parked), first=first, codes=dict(codes))

    def _error(self, fault: Fault) -> InputError:
        if fault.code is Code.SCHEMA_WAITS:
            return InputError(fault.code, where=self._where(*_id(fault)), found=fault.found)
        unparked = f" ({_UNPARKED})" if self._parks else ""
        remedy = "correct the producer" if fault.output is None else f"raise what {fault.output} takes"
        return InputError(
            fault.code,
            where=self._where(fault.partition, fault.offset),
            found=fault.found,
            expected=fault.expected,
            next_step=f"{remedy}; or leave this record out{unparked} with "
            f"--skip-record {fault.partition}@{fault.offset}",
        )

    def _where(self, partition: int, offset: int) -> str:
        return f"{self.topic}-{partition}@{offset}"


def _first(plan: BatchPlan, faults: Sequence[Fault]) -> Fault:
    """The fault to tell. Of new fields that of the first interval, for it may decide about a column."""
    if faults[0].code is not Code.SCHEMA_WAITS:
        return faults[0]

    def interval(fault: Fault) -> int:
        ends = [barrier.ends[fault.partition] for barrier in plan.barriers]
        return bisect_right(ends, fault.offset)

    return min((fault for fault in faults if fault.code is Code.SCHEMA_WAITS), key=interval)


def _id(fault: Fault) -> RecordId:
    return fault.partition, fault.offset


def _was_left_out(plan: BatchPlan, fault: Fault) -> bool:
    """True for a record of an earlier batch, which decided on it: such a record is left out again.

    Not if it is too large or has a new field, for limit and columns may have been others then. Nor while the table is
    read from its database: an event that waited for its row was valid in its own batch, and no job reads the topic.
    """
    is_early = plan.reading is None and fault.offset < plan.first_offsets[fault.partition]
    return is_early and fault.code not in (Code.RECORD_TOO_LARGE, Code.SCHEMA_WAITS)


def without_parked(plan: BatchPlan) -> BatchPlan:
    """The plan with the records in it that were to be parked, which lanes will reject again."""
    parked = {(item.partition, item.offset) for item in plan.parked}
    return replace(plan, parked=(), skipped=tuple(each for each in plan.skipped if each not in parked))
