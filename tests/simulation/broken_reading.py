"""Starts from a database that get one thing wrong: what an event's place is, when a chunk is due, or what is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.job import JobDefinition
from state.columns import TRANSACTION
from state.initial.chunks import CHUNKS_PATH
from state.values.aligned import Pin
from state.values.chunks import Streamed, TransactionSnapshot
from state.values.plan import BatchPlan
from streaming.core.planning import CutFunction
from streaming.lane.task import LaneTask
from streaming.protocol.batches import Batches
from streaming.protocol.effects import CommitProgress, Effect, KeepWaiting, RunLanes
from streaming.protocol.executor import Done, Executor
from streaming.protocol.planner import Planner
from streaming.source.decoded import AFTER, BEFORE, POSITION
from tests.simulation.broken_driver import behind
from tests.simulation.database import Moment
from tests.simulation.instance import Instance
from tests.simulation.storage import MemoryStorage
from tests.simulation.table_reader import Selected, TableReader

EVERYTHING = (1 << 64) - 1

# what becomes of events ------------------------------------------------------------------------------------


class _SnapshotsOfLsns(TableReader):
    """A snapshot sees what lies before an LSN."""

    @property
    def now(self) -> Moment:
        moment = super().now
        behind = moment.written_lsn + 1
        return moment._replace(snapshot=TransactionSnapshot(behind, behind))


class ComparesLsns(Instance):
    reader_type = _SnapshotsOfLsns

    def lane_rows(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        rows = super().lane_rows(task, lane)
        place, lsns = rows.schema.get_field_index(TRANSACTION), pc.struct_field(rows[POSITION], "p1")
        return rows.set_column(place, TRANSACTION, lsns)


class DropsWhatIsUnread(Instance):
    """Events of keys that no chunk has come to are dropped as they come."""

    def lane_rows(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        rows, reading = super().lane_rows(task, lane), task.plan.reading
        if reading is None:
            return rows
        ids = pc.coalesce(*(pc.struct_field(rows[half], "id") for half in (AFTER, BEFORE)))
        unread = [rest.keys for rest in reading.read.unread]
        kept = [id_ is None or not any(keys.holds((id_,)) for keys in unread) for id_ in ids.to_pylist()]
        return rows.filter(pa.array(kept, pa.bool_()))


# when chunks are due ---------------------------------------------------------------------------------------


class ReleasesAtOnce(TableReader):
    """At the next barrier, whatever the connector has sent."""

    def proofs(self) -> Sequence[Streamed]:
        return [Streamed(EVERYTHING, (0,) * len(self.now.ends))]


class ReleasesEarly(TableReader):
    """Releases as soon as the slot has confirmed, though the barrier has not come to the ends."""

    def proofs(self) -> Sequence[Streamed]:
        return [replace(proof, ends=(0,) * len(proof.ends)) for proof in super().proofs()]


class AsksTheTopicFirst(TableReader):
    def prove(self) -> Streamed:
        ends = self.now.ends
        self.wait("ask the slot, behind the topic", self.later())
        return Streamed(self.now.confirmed_lsn, ends)


class AsksForTheLogEarly(TableReader):
    """Asks for the end of the log before the snapshot is there."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._early = self.now.written_lsn

    def written_lsn(self, selected: Selected) -> int:
        return self._early


class _CutsAnywhere(Planner):
    """Jobs read all that the replica has, as if it had all."""

    def cut_of(self, pin: Pin) -> Callable[[JobDefinition], CutFunction]:
        return self.scans.cut_of(pin)


class ReadsBehindWhatIsReleased(Batches):
    planner_type = _CutsAnywhere


# what is kept ----------------------------------------------------------------------------------------------


class TakesFilesOfOthers(TableReader):
    """Takes rows of these keys that an instance before has staged for its own."""

    def stage(self, selected: Selected) -> tuple[str, ...]:
        storage, keys = self.storage, selected.keys
        assert isinstance(storage, MemoryStorage)
        own = super().stage(selected)
        for path, content in storage.memory.contents.items():
            folder, _, name = path.rpartition("/")
            ids = content["id"].to_pylist() if folder == CHUNKS_PATH and name not in own else []
            if ids and len(ids) == len(selected.rows) and all(keys.holds((id_,)) for id_ in ids):
                return (name,)
        return own


class WaitingBeforeLog(Batches):
    def effects_of(self, plan: BatchPlan) -> tuple[Effect, ...]:
        return behind(super().effects_of(plan), KeepWaiting, RunLanes)


class WaitingBehindProgress(Batches):
    def effects_of(self, plan: BatchPlan) -> tuple[Effect, ...]:
        return behind(super().effects_of(plan), KeepWaiting, CommitProgress)


class _ForgetsThoseThatGoOnWaiting(Executor):
    def perform(self, effect: Effect, left: tuple[Effect, ...], done: Done) -> tuple[Effect, ...]:
        reading = effect.plan.reading
        if isinstance(effect, KeepWaiting) and reading is not None and reading.due:
            self.reading.keep(effect.plan, [], self.commit)
            return left
        return super().perform(effect, left, done)


class WritesNothingAnew(Batches):
    """A release takes away all that waited."""

    executor_type = _ForgetsThoseThatGoOnWaiting


class _KeepsThoseThatWaited(Executor):
    def perform(self, effect: Effect, left: tuple[Effect, ...], done: Done) -> tuple[Effect, ...]:
        reading = effect.plan.reading
        if isinstance(effect, KeepWaiting) and reading is not None:
            effect = KeepWaiting(replace(effect.plan, reading=replace(reading, due=0)))
        return super().perform(effect, left, done)


class WritesOnTop(Batches):
    """A release takes nothing away."""

    executor_type = _KeepsThoseThatWaited


class UnsyncedChunks(MemoryStorage):
    def sync(self, *parts: str) -> None:
        if parts[:1] != (CHUNKS_PATH,):
            super().sync(*parts)
