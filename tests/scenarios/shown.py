"""Prints of scenarios: the records that became visible on the outputs, and what journal, log and progress say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from schemas.avro.codec import decode_barrier
from schemas.job import JobDefinition
from schemas.records import Op, Row, VnodeProgress
from state.columns import LEFT_OUT, OP
from state.initial.chunks import WAITING_PATH, waiting_rows
from state.journal import Journal
from state.ledger import files_of
from state.progress_table import ProgressTable
from state.replica import Replica
from state.values.chunks import KeyRange
from state.values.plan import BatchPlan, JobState
from state.values.progress import Completed, Progress
from streaming.core.jobs import jobs_after
from streaming.kafka.topics import PartitionId
from streaming.reading.records.forms import RecordForm
from streaming.reading.records.reader import reader_of
from streaming.verify.history import TopicEntry
from tests.kit.upstream import EPOCH_STEP
from tests.scenarios.keys import Keys
from tests.simulation.judge import committed, progress_of
from tests.simulation.world import World


class Shown:
    """Remembers which records were printed."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._counts: dict[PartitionId, int] = {}
        self._has_keys = True

    def news(self, world: World) -> Iterator[str]:
        """The records that a committed reader sees and did not see before, by output partition."""
        for output, job in world.setting.every_job.items():
            for place in world.durable.topics.partitions(output):
                entries = committed(world.durable.topics, job, place[1])
                new = entries[self._counts.get(place, 0) :]
                self._counts[place] = len(entries)
                if new:
                    yield f"{place[0]}-{place[1]}"
                    yield from (f"  {self._record(world, job, entry)}" for entry in new)
            yield from self._letters(world, job.dead_letters)

    def _letters(self, world: World, topic: str) -> Iterator[str]:
        place = (topic, 0)
        if not world.durable.topics.partitions(topic):
            return
        letters = world.durable.topics.letters(topic)
        new = letters[self._counts.get(place, 0) :]
        self._counts[place] = len(letters)
        for letter in new:
            is_empty = letter.key is None and letter.value is None
            yield f"{topic}: the record at {letter.place}{', without its content' if is_empty else ''}"

    def _record(self, world: World, job: JobDefinition, entry: TopicEntry) -> str:
        table, columns = world.setting.table, [column.source for column in job.columns]
        self._has_keys = table.has_key
        if entry.barrier is not None:
            barrier = entry.closes or decode_barrier(entry.barrier, entry.value, where="output")
            listed = ", ".join(map(self._position, barrier.progress))
            mutation = "" if barrier.mutation is None else f" with {barrier.mutation}"
            announced = "".join(f" with {name} {text}" for name, text in barrier.columns)
            return f"barrier {number_of(barrier.curr)}{mutation}{announced}" + (
                f": {listed}" if listed else ""
            )
        form = RecordForm.of_output(job, table)
        sent = reader_of(form, job.columns_of(table), job.key_columns_of(table))
        read = sent.record(entry.key, entry.value)
        change, columns = read.change, columns[: read.width]
        assert change is not None
        if not table.has_key:
            return f"{'-' if entry.key is None else entry.key.decode()} {_text(change.row, columns)}"
        key = "/".join(
            self._keys.name(value) if column.source == "id" else str(value)
            for column, value in zip(job.in_key(table), sent.key(entry.key or b""), strict=True)
        )
        halves = [_text(half, columns) for half in (change.before, change.after) if half is not None]
        values = halves[-1:] if change.op is Op.INSERT else halves
        listed = " -> ".join(values) if any(values) else ""
        return f"{change.op.name} {key} {listed}".rstrip()

    def _position(self, listed: VnodeProgress) -> str:
        position = None if listed.position is None else tuple(json.loads(listed.position))
        return self._vnode(listed.vnode, position, listed.finished, listed.row_count)

    def _vnode(self, vnode: int, position: Row | None, finished: bool, rows: int) -> str:
        at = (
            "complete"
            if finished
            else "at its beginning"
            if position is None
            else f"at {self._keys.name(position[0]) if self._has_keys else position[0]}"
        )
        return f"{self._keys.vnode(vnode)} {at} ({rows} {'row' if rows == 1 else 'rows'})"

    # the state ---------------------------------------------------------------------------------------------

    def state(self, world: World) -> Iterator[str]:
        """The epochs of journal, log and batches, and each job's positions by the progress table."""
        entry = Journal(world.storage, world.setting.table).current
        plan = None if entry is None else entry.plan
        if plan is None:
            yield "no plan"
            return
        table = ProgressTable(world.storage, world.setting.table)
        log = Replica(world.storage, world.setting.table)
        yield f"plan: {self._plan(plan)}"
        epochs = table.epoch, log.log_epoch
        yield from self._reading(world, plan, is_done=plan.is_done(*epochs))
        yield f"log: barrier {number_of(log.log_epoch)}, base: barrier {number_of(log.compacted_epoch)}"
        yield f"progress: barrier {number_of(max(table.epoch, plan.finished_epoch(is_done=plan.is_done(*epochs))))}"
        # The mutations of an open batch have yet to take effect.
        jobs = tuple(job.state for job in plan.jobs)
        if plan.is_done(*epochs):
            jobs = jobs_after(plan, world.setting.table).jobs
        for job in jobs:
            yield self._job(job, progress_of(world, job))

    def _plan(self, plan: BatchPlan) -> str:
        first, last = (number_of(aligned.epoch) for aligned in (plan.barriers[0], plan.barriers[-1]))
        what = f"barrier {last}" if first == last else f"barriers {first} to {last}"
        part = "" if plan.until is None else f", a part up to {'/'.join(map(str, plan.until))}"
        parked = f", {len(plan.parked)} parked" if plan.parked else ""
        return f"{what}, {plan.lanes} {'lane' if plan.lanes == 1 else 'lanes'}{part}{parked}"

    def _reading(self, world: World, plan: BatchPlan, *, is_done: bool) -> Iterator[str]:
        if world.setting.changelog.timeline is None:
            return
        if plan.reading is None:
            yield "table: over"
            return
        read = plan.reading.read.release(plan.reading.due if is_done else 0)
        done = [] if read.released is None else [read.released]
        spans = " and ".join(map(self._span, _joined([*done, *(chunk.keys for chunk in read.chunks)])))
        released = " and ".join(map(self._span, done))
        yield f"table: {f'read {spans}' if spans else 'nothing read'}, " + (
            f"released {released}" if released else "nothing released"
        )
        yield f"waiting: {', '.join(self._waiting(world)) or 'nothing'}"

    def _span(self, keys: KeyRange) -> str:
        after = "" if keys.after is None else f"behind {self._keys.name(int(keys.after[0]))} "
        return after + f"up to {'its end' if keys.upto is None else self._keys.name(int(keys.upto[0]))}"

    def _waiting(self, world: World) -> Iterator[str]:
        """The events that wait, in their order."""
        versions = world.durable.files.tables.get(WAITING_PATH, [])
        files = files_of(world.storage, WAITING_PATH, len(versions) - 1) if versions else []
        table = world.setting.table
        for event in waiting_rows(world.storage, table, files, range(table.vnode_count)).to_pylist():
            value = "the same" if event[LEFT_OUT] else event["v"]
            what = "deleted" if event[OP] == Op.DELETE else f"= {value}"
            yield f"{self._keys.name(event['id'])} {what}"

    def _job(self, job: JobState, progress: dict[int, Progress]) -> str:
        vnodes = [
            self._vnode(vnode, state.position, isinstance(state, Completed), state.row_count)
            for vnode, state in sorted(progress.items())
        ]
        limit = "" if job.rate_limit is None else f", rate {job.rate_limit}"
        return f"{job.name}{', paused' if job.paused else ''}{limit}: {', '.join(vnodes) or 'not started'}"


def _joined(ranges: Iterable[KeyRange]) -> Iterator[KeyRange]:
    """Ranges that follow each other without a gap as one; they come in key order."""
    last: KeyRange | None = None
    for keys in ranges:
        if last is None or last.upto == keys.after:
            last = KeyRange(keys.after if last is None else last.after, keys.upto)
        else:
            yield last
            last = keys
    if last is not None:
        yield last


def number_of(epoch: int) -> int:
    """Barriers count from 1."""
    return epoch // EPOCH_STEP


def _text(row: Row, columns: Sequence[str]) -> str:
    return "/".join(
        "null" if value is None else str(value)
        for value, name in zip(row, columns, strict=False)
        if name != "id"
    )
