"""The lanes of a table that is read from a database, with their files: the same histories, and the same judge.

The replica is what the log says. Lanes run twice now and then, and the commit of what waits is made twice, as when a
plan is carried out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.records import Barrier, BarrierKind, Op
from state.columns import EPOCH, OFFSET, OP, PARTITION, TRANSACTION, VNODE, log_schema, waiting_schema
from state.initial.chunks import WaitingEvents, stage, waiting_rows, write_waiting
from state.storage import DataFile, Storage
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.chunks import KeyRange
from state.values.plan import BatchPlan
from state.values.reading import Reading
from streaming.lane import complete as lane_waiting
from streaming.lane.changes import log_rows, order_changes
from streaming.lane.complete import LaneReading
from streaming.source.decoded import AFTER, BEFORE, KEY, SIZE, UNCHANGED, decoded_schema
from tests.kit.database import NO_VALUE, Event, Row
from tests.kit.database_reader import KEYS, PARTITIONS, Reader, UnlawfulError, play
from tests.kit.tables import table, vnode_of

TABLE = table({"key": "bigint", "value": "string", "large": "string"}, key=["key"], vnode_count=5)
SCHEMA = decoded_schema(TABLE)
SCHEMA = SCHEMA.append(pa.field(UNCHANGED, pa.list_(pa.int32()))).append(pa.field(TRANSACTION, pa.int64()))
VNODES = {key: vnode_of(TABLE, (key,)) for key in range(KEYS)}
SEEDS = 12


@dataclass
class FilesReader(Reader):
    """With lanes in place of the harness's own batch."""

    folder: Path = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.storage = Storage(str(self.folder), synced=False)
        self.ledger = WaitingEvents(self.storage, TABLE)
        self.files: dict[KeyRange, tuple[str, ...]] = {}
        self.epoch = 0
        self.held = 0

    def batch(self) -> None:
        if not self.barriers:
            return
        self.epoch += 1
        plan = self._plan(self.barriers.pop(0))
        # As the journal has it.
        plan = BatchPlan.from_json(plan.to_json(), TABLE)
        assert plan.reading is not None
        came = self._came(plan)
        for lane in range(plan.lanes if self.random.random() < 0.2 else 0):
            self._lane(plan, lane, came)  # for nothing
        results = [self._lane(plan, lane, came) for lane in range(plan.lanes)]
        files = [
            write_waiting(self.storage, waits, f"{self.epoch}-{self.random.random()}") for _, waits in results
        ]
        for _ in range(self.random.choice([1, 1, 2])):
            self.ledger.commit(files, self.epoch, version=plan.reading.waiting, anew=plan.reading.due > 0)
        for rows, _ in results:
            self._take(rows)
        self.offsets = list(plan.end_offsets)
        self.read = self.known = plan.reading.read.release(plan.reading.due)
        self.waiting = self._events_of(self.ledger.files(self.ledger.version))
        for keys in [keys for keys in self.staged if all(keys != chunk.keys for chunk in self.read.chunks)]:
            del self.staged[keys]
        self.judge()

    def _plan(self, ends: tuple[int, ...]) -> BatchPlan:
        read = self.known
        files = tuple(self._staged(chunk.keys) for chunk in read.chunks)
        due = read.due(ends, self.proofs, most_rows=self.random.choice([None, 1, 5]))
        barrier = Barrier(self.epoch << 16, 0, BarrierKind.CHECKPOINT, PARTITIONS, 0)
        return BatchPlan(
            start=None,
            barriers=(AlignedBarrier(barrier, ends, in_data=False),),
            first_offsets=tuple(self.offsets),
            replica=ReplicaVersion(0, 0, 0),
            lanes=self.random.choice([1, 2, 3]),
            reading=Reading(read, files, self.ledger.version, due),
        )

    def _staged(self, keys: KeyRange) -> tuple[str, ...]:
        """A chunk comes in several pieces."""
        if keys not in self.files:
            rows = sorted(self.staged[keys].items())
            pieces = [rows[:2], rows[2:]]
            self.files[keys] = tuple(stage(self.storage, TABLE, _rows(piece)) for piece in pieces if piece)
        return self.files[keys]

    def crash(self) -> None:
        super().crash()
        self.files = {keys: files for keys, files in self.files.items() if keys in self.staged}
        self.ledger = WaitingEvents(self.storage, TABLE)

    def _came(self, plan: BatchPlan) -> pa.RecordBatch:
        ranges = enumerate(zip(plan.first_offsets, plan.end_offsets, strict=True))
        places = [(number, offset) for number, (first, end) in ranges for offset in range(first, end)]
        topic = self.connector.topic
        rows = [
            _decoded(number, offset, topic[number][offset])
            for number, offset in places
            if self._is_new(number, topic[number][offset])
        ]
        self.random.shuffle(rows)
        return pa.RecordBatch.from_pylist(rows, SCHEMA)

    def _lane(self, plan: BatchPlan, lane: int, came: pa.RecordBatch) -> tuple[pa.Table, pa.Table]:
        """Rows for the log, and events that wait."""
        count, reading = TABLE.vnode_count, plan.reading
        assert reading is not None
        vnodes = range(-(-lane * count // plan.lanes), -(-(lane + 1) * count // plan.lanes))
        files = self.ledger.files(reading.waiting)
        share = LaneReading(self.storage, TABLE, reading, files, vnodes, plan.epoch)
        mine = came.filter(pa.array([VNODES[row] in vnodes for row in _keys(came)], pa.bool_()))
        cut = self.random.randint(0, len(mine))  # parts come in the order of offsets
        changes = order_changes([mine], SCHEMA, plan, TABLE)
        parts = (np.arange(len(changes)) < cut, np.arange(len(changes)) >= cut)
        applied = [log_rows(share(changes.filtered(part)), plan, log_schema(TABLE)) for part in parts]
        released = list(share.released())
        self.held += share.held
        if share.lacking:
            raise UnlawfulError("a value that is left out of a row that nobody has")
        return pa.concat_tables([*applied, *released]), share.waiting()

    def _take(self, rows: pa.Table) -> None:
        order = [(EPOCH, "ascending"), (PARTITION, "ascending"), (OFFSET, "ascending")]
        for row in rows.sort_by(order).to_pylist():
            key, large = row["key"], row["large"]
            if row[OP] == Op.DELETE:
                self.rows.pop(key, None)
            else:  # what applies takes values that are left out from the row before, as ever
                self.rows[key] = Row(row["value"], self.rows[key].large if large is None else large)

    def _events_of(self, files: Sequence[DataFile]) -> list[Event]:
        found = waiting_rows(self.storage, TABLE, files, range(TABLE.vnode_count))
        assert found.schema == waiting_schema(TABLE)
        places = [*zip(found[PARTITION].to_pylist(), found[OFFSET].to_pylist(), strict=True)]
        assert len({*places}) == len(places), "an event waits twice"
        assert [VNODES[row["key"]] for row in found.to_pylist()] == found[VNODE].to_pylist()
        return [Event(row["key"], None, row[TRANSACTION], (0, 0), None) for row in found.to_pylist()]


def _keys(rows: pa.RecordBatch) -> list[int]:
    return [(row[AFTER] or row[BEFORE])["key"] for row in rows.to_pylist()]


def _rows(rows: Sequence[tuple[int, Row]]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([key for key, _ in rows], pa.int64()),
            "value": [row.value for _, row in rows],
            "large": [row.large for _, row in rows],
        }
    )


def _decoded(partition: int, offset: int, event: Event) -> dict[str, Any]:
    row = event.row
    left_out = row is not None and row.large == NO_VALUE
    keys = {"key": event.key, "value": None, "large": None}
    after = None if row is None else {**keys, "value": row.value, "large": None if left_out else row.large}
    return {
        PARTITION: partition,
        OFFSET: offset,
        KEY: b"",
        SIZE: 1,
        OP: Op.DELETE if row is None else Op.INSERT,
        VNODE: VNODES[event.key],
        BEFORE: keys if row is None else None,
        AFTER: after,
        UNCHANGED: [2] if left_out else [],
        TRANSACTION: event.transaction % (1 << 32),
    }


@pytest.mark.slow
@pytest.mark.parametrize("rows_at_once", [2, 200_000])
def test_lanes_bring_the_rows_of_chunks_and_what_they_lack_into_the_log(
    rows_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_waiting, "ROWS_AT_ONCE", rows_at_once)
    held = 0
    for seed in range(SEEDS):
        reader = play(seed, reader=partial(FilesReader, folder=tmp_path / str(seed)))
        assert isinstance(reader, FilesReader)
        held += reader.held
    assert held > 10


def test_what_waits_is_committed_once(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path), synced=False)
    ledger = WaitingEvents(storage, TABLE)

    def file(*keys: int) -> DataFile:
        rows = [
            {VNODE: VNODES[key], PARTITION: 0, OFFSET: key, OP: 0, TRANSACTION: 9, "key": key, "value": "v"}
            for key in keys
        ]
        return write_waiting(storage, pa.Table.from_pylist(rows, waiting_schema(TABLE)), "some")

    def waiting() -> list[int]:
        files = ledger.files(ledger.version)
        found = waiting_rows(storage, TABLE, files, range(TABLE.vnode_count))
        return [int(key) for key in found["key"].to_pylist()]

    first = ledger.version
    ledger.commit([file()], 1, version=first, anew=True)
    assert (ledger.version, ledger.epoch) == (first, 0), "nothing waited, and nothing does"
    ledger.commit([file(1, 2)], 2, version=first, anew=False)
    ledger.commit([file(1, 2)], 2, version=first, anew=False)
    assert (waiting(), ledger.epoch) == ([1, 2], 2)
    ledger.commit_part([file(3)], 7)
    ledger.commit_part([file(3)], 7)
    assert waiting() == [1, 2, 3]
    before = ledger.version
    rewritten = file(3)
    for _ in range(2):
        ledger = WaitingEvents(storage, TABLE)
        ledger.commit([rewritten], 3, version=before, anew=True)
        assert (waiting(), ledger.epoch) == ([3], 3)
    assert sorted(each.rows for each in ledger.files(before)) == [1, 2], (
        "for a plan that is carried out again"
    )
    ledger.commit([], 4, version=ledger.version, anew=True)
    assert waiting() == []
