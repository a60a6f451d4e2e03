"""Judgement of the records of a batch that are redelivered: once for all lanes, where one has seen positions fall."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import structlog

from schemas.codec.logs import LogId, position_text
from schemas.error_table import expectation
from schemas.errors import Code, InputError
from schemas.formats.protocol import UpstreamFormat
from schemas.records import RecordId
from state.values.plan import BatchPlan
from state.values.seen import Seen
from streaming.core.planning import markers_of
from streaming.core.redelivery import Fall, Judgement, Logged, Redelivery, Why
from streaming.source.direct_read import LoggedRecords

Ranges = Mapping[int, tuple[int, int]]
"""Offsets [first, end) by partition."""

Offsets = tuple[int, ...]
"""Offsets, one for each partition."""

_MOST_HELD = 50_000
"""Records of several intervals that are read together."""
NEW_SNAPSHOT = "a new snapshot; if the log was begun anew, rows deleted before it may remain"

log = structlog.get_logger(__name__)


@dataclass
class LogResets:
    """The operator's decision on logs that begin anew. `accepts`: always; else so many `times` a log and partition.

    The same record is accepted again, should its batch be judged again.
    """

    accepts: bool = False
    times: int = 0
    _taken: dict[tuple[int, LogId], set[int]] = field(default_factory=dict)

    def __call__(self, fall: Fall) -> bool:
        """True if this fall of positions is accepted."""
        if self.accepts:
            return True
        taken = self._taken.setdefault((fall.partition, fall.log), set())
        if fall.offset not in taken and len(taken) < self.times:
            taken.add(fall.offset)
        return fall.offset in taken


@dataclass(frozen=True)
class RedeliveryJudge:
    """Judges the records of one topic."""

    topic: str
    records: LoggedRecords
    resets: LogResets

    def judgement(self, plan: BatchPlan, format_: UpstreamFormat) -> Judgement:
        """Judge the batch's records. A silent plan's are in the outputs already: none is refused or reported.

        Raises: InputError(LOG_WENT_BACK); as `LoggedRecords.read`.
        """
        judge = Redelivery(plan.seen, (lambda fall: True) if plan.silent else self.resets)
        skipped = {*plan.skipped, *markers_of(plan)}
        ends = [plan.end_offsets] if plan.until is not None else [each.ends for each in plan.barriers]
        for interval in self._by_interval(plan, ends, format_, skipped):
            for record in interval:
                judge.is_new(record)
            if plan.until is None:
                self._refuse(judge.end_interval())
        if plan.until is not None:
            if judge.needs_consent:  # a row of a snapshot may stand in the rest of the interval
                for record in self.records.read(
                    _ranges(plan.until, plan.end.ends), format_, skipped, plan.epoch
                ):
                    if record.position is not None and record.position.position is None:
                        judge.snapshot(record.partition, record.position.log)
            self._refuse(judge.end_part())
        found = judge.judgement()
        if not plan.silent:
            self._log(found)
        return found

    def _by_interval(
        self, plan: BatchPlan, ends: Sequence[Offsets], format_: UpstreamFormat, skipped: Set[RecordId]
    ) -> Iterator[Iterable[Logged]]:
        """The records of each interval. Short ones are read together, for a reader takes time to begin."""
        first, left = plan.first_offsets, list(ends)
        while left:
            count = 1
            while count < len(left) and sum(left[count]) - sum(first) <= _MOST_HELD:
                count += 1
            together, left = left[:count], left[count:]
            found = self.records.read(_ranges(first, together[-1]), format_, skipped, plan.epoch)
            first = together[-1]
            if count == 1:
                yield found
                continue
            by_interval: list[list[Logged]] = [[] for _ in together]
            for record in found:
                behind = [offsets[record.partition] for offsets in together]
                by_interval[bisect_right(behind, record.offset)].append(record)
            yield from by_interval

    def _refuse(self, fall: Fall | None) -> None:
        if fall is None:
            return
        raise InputError(
            Code.LOG_WENT_BACK,
            where=f"{self.topic}-{fall.partition}@{fall.offset}",
            found=fall.found,
            expected=expectation(Code.LOG_WENT_BACK),
        )

    def _log(self, found: Judgement) -> None:
        for run in found.runs:
            log.info(
                "redelivered_records_dropped",
                partition=f"{self.topic}-{run.partition}",
                log=str(run.log),
                count=run.count,
                offsets=f"{run.first_offset} to {run.last_offset}",
                positions=f"{position_text(run.first)} to {position_text(run.last)}",
            )
        for fall in found.falls:
            log.warning(
                "log_went_back",
                where=f"{self.topic}-{fall.partition}@{fall.offset}",
                log=str(fall.log),
                found=fall.found,
                taken_because=str(fall.why),
            )
        for row in found.snapshots:
            log.warning("new_snapshot", upstream=self.topic, log=str(row), note=NEW_SNAPSHOT)


def log_new_logs(topic: str, before: Mapping[int, Seen], after: Mapping[int, Seen]) -> None:
    """Log what lanes accepted without a judgement: logs that began anew, and new snapshots of known ones."""
    reported = set[tuple[str, str]]()
    for partition, seen in after.items():
        for log_id, mark in seen.marks.items():
            known = before.get(partition, Seen()).marks.get(log_id)
            if known is None or known.highest is None or mark.highest == known.highest:
                continue
            if mark.may_fall and not known.may_fall and ("snapshot", log_id.name) not in reported:
                reported.add(("snapshot", log_id.name))
                log.warning("new_snapshot", upstream=topic, log=str(log_id), note=NEW_SNAPSHOT)
            elif mark.highest is not None and log_id.is_lower(mark.highest, known.highest):
                log.warning(
                    "log_went_back",
                    where=f"{topic}-{partition}",
                    log=str(log_id),
                    found=f"position {position_text(mark.highest)}, below {position_text(known.highest)}",
                    taken_because=str(Why.SNAPSHOT if known.may_fall else "no lane saw it fall"),
                )


def _ranges(starts: Offsets, ends: Offsets) -> dict[int, tuple[int, int]]:
    pairs = enumerate(zip(starts, ends, strict=True))
    return {number: pair for number, pair in pairs if pair[0] < pair[1]}
