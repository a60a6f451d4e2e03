"""A service of many batches in a short time, without Spark and without Kafka: what it does to its own state.

Real are the plans, journal, log, progress and their commits, compactions, merges, cleaning and snapshot reads, on a
real folder. Lanes run in this process: they write the log, read slices, and send nothing. Every batch has the same
number of changes, of keys that follow from its number, so whatever comes after a kill knows what the table has to hold.

`python -m tests.bench.player FOLDER BATCHES` plays up to so many batches and then looks at what is left;
a line of JSON on standard output for each batch, see `Played` and `Left`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import NoReturn

import numpy as np
import psutil
import pyarrow as pa

from schemas.job import JobDefinition
from schemas.records import Add, Barrier, BarrierKind, Drop, Mutation
from state.columns import VNODE
from state.journal import PATH as JOURNAL_PATH
from state.journal import Journal
from state.ledger import files_of
from state.maintenance.cleaning import clean_state
from state.maintenance.compaction import CompactionPart, CompactionResult, compact_part
from state.maintenance.merge import Merge, Merged, merge_files
from state.progress_table import PATH as PROGRESS_PATH
from state.replica import BASE_PATH, LOG_PATH, write_log_file
from state.retention import StateRetention
from state.storage import Storage
from state.values.aligned import AlignedBarrier, Pin
from state.values.plan import JobPlan, Parked, Slice
from state.values.progress import is_complete
from streaming.compaction.compactor import CompactionReport, Compactor
from streaming.lane.task import LaneOutcome, LaneResult, LaneTask, Sent
from streaming.protocol.bad_records import BadRecords
from streaming.protocol.batches import Batches
from streaming.protocol.lanes.runner import LaneRunner, Way
from streaming.protocol.recovery.forward import Forward
from streaming.protocol.setup import BatchSetup
from streaming.scan.kinds import Arrangement
from streaming.sink.protocol import OpenWriter, Sink
from tests.bench.expected import (
    EPOCH_STEP,
    KEYS,
    TABLE,
    Expected,
    end_of,
    hashes_of,
    rows_of,
)
from tests.kit.no_registry import NoRegistry, NoSchemas, NothingLogged

TABLES = {"journal": JOURNAL_PATH, "progress": PROGRESS_PATH, "log": LOG_PATH, "base": BASE_PATH}
RETENTION = StateRetention(files_s=10, log_s=5)
CLEANING_S = 5.0
_LANES, _JOB_BATCHES = 2, 100
"""Lanes of a batch, and batches from one job to the next, which takes its place."""
_COMPACTION_LEAST_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Played:
    """A batch: its number, Unix seconds of its end, what its commits took, and what it found.

    `files`, `bytes` and `list_ms` of each table as it lies on disk, for some batches only.
    """

    number: int
    at: float
    commits_ms: float
    log_files: int
    memory_mib: float
    compactions: int
    files: dict[str, int]
    bytes: dict[str, int]
    list_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class Left:
    """At the end.

    `dead_files`: data files that neither a table names nor the plan in the journal. `versions` of the tables.
    """

    dead_files: int
    versions: dict[str, int]
    wrong_rows: int


class _Lanes(LaneRunner):
    """In this process, one after the other."""

    slots, is_cold = _LANES, False

    def __init__(self, expected: Expected) -> None:
        self._expected = expected

    def is_empty(self, task: LaneTask) -> bool:
        return False

    def run(self, task: LaneTask, way: Way) -> list[LaneOutcome]:
        number = task.plan.epoch // EPOCH_STEP
        changes = self._expected.changes(number)
        return [self._lane(task, lane, changes) for lane in range(task.plan.lanes)]

    def _lane(self, task: LaneTask, lane: int, changes: pa.Table) -> LaneResult:
        vnodes = task.vnodes(lane)
        own = changes[VNODE].to_numpy()
        rows = changes.filter(pa.array((own >= vnodes.start) & (own < vnodes.stop)))
        log = write_log_file(task.storage, rows, f"{task.plan.epoch:020d}-{lane}") if rows.num_rows else None
        read = {
            job.state.name: {item.part: _read(task, job, item) for item in job.of_parts(vnodes).slices}
            for job in task.plan.jobs
        }
        return LaneResult(
            lane=lane,
            log=(log,) if log else (),
            sent=Sent(rows_read=read),
            changes=rows.num_rows,
            held_bytes=rows.nbytes,
        )


def _read(task: LaneTask, job: JobPlan, item: Slice) -> int:
    """The number of rows of a slice."""
    read = task.scans[job.state.definition.scan].reader(frozenset({item.part}), TABLE.column_names)
    return sum(rows.num_rows for rows in read(item))


def _compact(parts: Sequence[CompactionPart]) -> CompactionResult:
    return reduce(or_, map(compact_part, parts), CompactionResult())


def _merge(merges: Sequence[Merge]) -> list[Merged]:
    return [merge_files(merge) for merge in merges]


class _NoSink(Sink):
    """Of jobs that write nothing."""

    @property
    def open_writer(self) -> OpenWriter:
        return _never

    def refuse_used(self, job: JobDefinition) -> None: ...


class Player:
    """One service, from taking the state over to its end."""

    def __init__(self, folder: Path) -> None:
        self._storage = Storage(str(folder), RETENTION)
        self._storage.prepare()
        self._compactions = self._number = 0
        journal = Journal(self._storage, TABLE)
        journal.take_over(f"player {os.getpid()}", "{}")
        setup = BatchSetup(
            storage=self._storage,
            table=TABLE,
            sink_of=lambda job: _NoSink(),
            lanes=_Lanes(Expected()),
            schemas=NoSchemas(),
            registers=NoRegistry(),
            logged=NothingLogged(),
            declared_lanes=_LANES,
            journal=journal,
            first_offsets=[0],
            read_letters=_never,
            early_letters=_no_letters,
            bad_records=BadRecords("played"),
            forward=Forward(lambda job: _NoSink(), lambda: 0, TABLE),
            now_ms=lambda: self._number * 1_000,
        )
        self._batches = Batches(setup)

    def play(self, batches: int, pace_s: float, look_every: int) -> Iterator[Played]:
        """Play the batches that are left; `pace_s` is the time from the begin of one to that of the next."""
        compactor = Compactor(
            _compact,
            _merge,
            self._batches.replica,
            self._compacted,
            compaction_least_rows=_COMPACTION_LEAST_ROWS,
            slots=lambda: _LANES,
            cleaning_s=CLEANING_S,
            first_cleaning_s=CLEANING_S,
        )
        self._batches.recover()
        position = self._batches.position
        done = 0 if position is None else position.epoch // EPOCH_STEP
        began, process = time.monotonic(), psutil.Process()
        for number in range(done + 1, batches + 1):
            time.sleep(max(began + (number - done - 1) * pace_s - time.monotonic(), 0.0))
            self._number = number
            compactor.batch_begins()
            report = self._batches.run_batch([self._barrier(number)], lambda barrier: ())
            assert report is not None, "nothing asks it to end"
            compactor.between_batches(report.plan.epoch, wait_for_compaction=number == 1)
            took = report.step_ms
            yield Played(
                number,
                time.time(),
                sum(took.get(step, 0.0) for step in ("plan", "replicate", "progress")),
                len(report.files.log),
                process.memory_info().rss / 2**20,
                self._compactions,
                *(self._look() if number % look_every == 0 else ({}, {}, {})),
            )
        compactor.finish()
        compactor.close()

    def _compacted(self, report: CompactionReport) -> None:
        if report.result.illegal:
            raise AssertionError(f"a compaction found {report.result.illegal}")
        self._compactions += 1

    def _barrier(self, number: int) -> AlignedBarrier:
        at = number * EPOCH_STEP
        barrier = Barrier(at, at - EPOCH_STEP, BarrierKind.CHECKPOINT, 1, 0, self._mutation(number))
        return AlignedBarrier(barrier, (end_of(number),))

    def _mutation(self, number: int) -> Mutation | None:
        """A job comes, reads the table and goes, and then another one."""
        job, place = divmod(number, _JOB_BATCHES)
        if place == 0:
            declared = {"name": f"job-{job}", "output": f"out-{job}", "rate_limit": KEYS // 20}
            return Add(JobDefinition.declare({**declared, "output_partitions": _LANES}, TABLE).to_json())
        if place == _JOB_BATCHES - 1 and job:
            every = self._batches.progress.get(f"job-{job}", {})
            rows = sum(progress.row_count for progress in every.values())
            if not is_complete(every, TABLE.vnode_count) or rows != KEYS:
                raise AssertionError(f"job {job} has read {rows} rows of {KEYS}")
            return Drop(f"job-{job}")
        return None

    def _look(self) -> tuple[dict[str, int], dict[str, int], dict[str, float]]:
        files, sizes, took = {}, {}, {}
        for name, path in TABLES.items():
            began = time.perf_counter()
            found = [*_sizes(self._storage.path(path)), *_sizes(self._storage.path(path, "_delta_log"))]
            took[name] = (time.perf_counter() - began) * 1_000
            files[name], sizes[name] = len(found), sum(found)
        return files, sizes, took

    def left(self, batches: int) -> Left:
        """Once the retention is over, and all is cleaned."""
        time.sleep(max(RETENTION.files_s, RETENTION.log_s) + 1)
        clean_state(self._storage, TABLE, {})
        dead, versions = 0, {}
        plan = Journal(self._storage, TABLE).current.plan  # type: ignore[union-attr]  # batches were played
        pinned = {LOG_PATH: plan.replica.log, BASE_PATH: plan.replica.base} if plan else {}
        for name, path in TABLES.items():
            versions[name] = self._storage.delta(path).version()
            named = {
                file.path
                for version in {versions[name], pinned.get(path, versions[name])}
                for file in files_of(self._storage, path, version)
            }
            dead += len({file.name for file in Path(self._storage.path(path)).glob("*.parquet")} - named)
        return Left(dead, versions, self._wrong_rows(batches))

    def _wrong_rows(self, batches: int) -> int:
        replica, names = self._batches.replica, TABLE.column_names
        vnodes = frozenset(range(TABLE.vnode_count))
        read = Arrangement(replica).pinned(Pin(replica.pin(), ()), vnodes).reader(vnodes, names)
        parts = [rows for vnode in sorted(vnodes) for rows in read(Slice(vnode, None, None))]
        found = pa.concat_tables(parts).sort_by("id")
        keys = np.arange(KEYS, dtype=np.int64)
        if found.num_rows != KEYS or found["id"].to_pylist() != keys.tolist():
            return max(abs(int(found.num_rows) - KEYS), 1)
        expected = hashes_of(rows_of(keys, Expected().after(batches)))
        return int(np.count_nonzero(np.not_equal(hashes_of(found), expected)))


def _sizes(folder: str) -> Iterator[int]:
    """Of the files in it. The cleaning that goes on beside it may take some away."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_file():
                    yield entry.stat().st_size


def _no_letters(parked: Sequence[Parked], writer_id: str) -> None:
    raise AssertionError("nothing is parked")


def _never(*_: object) -> NoReturn:
    raise AssertionError("nothing is sent, and no letters are read")


def main(folder: str, batches: str, pace_s: str, look_every: str) -> None:
    """Play, and print a line for each batch."""
    player = Player(Path(folder))
    for played in player.play(int(batches), float(pace_s), int(look_every)):
        _print(played)
    _print(player.left(int(batches)))


def _print(what: Played | Left) -> None:
    sys.stdout.write(json.dumps(asdict(what)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
