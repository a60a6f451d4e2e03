"""A table that starts from a Delta table: copied, then changed by what comes behind its offsets."""

from __future__ import annotations

import datetime as dt
import shutil
import time
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from schemas.errors import BackfillError, Code
from schemas.records import BARRIER_HEADER, Row
from state.initial.start import CopyProgress
from state.storage import Storage
from streaming.cli.topics.target import initial_table, start_in
from streaming.control.state_view import StateReader
from streaming.kafka.consumer import RangeReader, header_of
from streaming.kafka.topics import watermarks
from streaming.runtime import failpoints
from tests.kit.folded import folded
from tests.kit.kafka_topics import remove_beginning
from tests.kit.real import Run, SetUp, Stage, await_condition, records
from tests.kit.real_upstream import RealUpstream, UpsertUpstream

COPY = {"name": "copy"}
EVEN = {"name": "even", "filter": "region = 'EU'", "columns": ["id", "note"]}
ROWS = 20_000
IN_PARTS: dict[str, Any] = {"limits": {"interval_records": 2_000}}


def row(number: int, note: str | None = None) -> Row:
    return (number, "EU" if number % 2 else "US", None, note)


def delta_of(stage: Stage, files: int = 8) -> tuple[str, int]:
    """The upstream's rows of now as a Delta table of so many files: its folder and version."""
    uri, table = str(stage.folder / "source"), stage.upstream.table
    schema = pa.schema([(column.name, column.type.arrow) for column in table.columns])
    rows = list(stage.upstream.rows.values())
    for number in range(files):
        part = rows[number::files]
        columns = {name: [each[i] for each in part] for i, name in enumerate(table.column_names)}
        data = pa.table(columns, schema=schema).append_column("more", pa.nulls(len(part), pa.string()))
        write_deltalake(uri, data, mode="append")
    return uri, DeltaTable(uri).version()


def offsets_now(stage: Stage) -> list[int]:
    stage.upstream.flush()
    return [marks.high for marks in watermarks(stage.upstream.kafka, stage.upstream.name)]


def starting(stage: Stage, *, files: int = 8) -> dict[str, Any]:
    """The section `initial` for the table as the upstream has it now."""
    uri, version = delta_of(stage, files)
    return {"initial": {"delta": {"uri": uri, "version": version, "offsets": offsets_now(stage)}}}


def change(upstream: RealUpstream, word: str, keys: range) -> None:
    for number in keys:
        if number % 5 == 0 and (number,) in upstream.rows:
            upstream.delete(number)
        else:
            upstream.put(row(number, word))


def lawful(stage: Stage, initial: dict[str, Any], number: int = 0) -> None:
    """By a fold that starts from the same table."""
    config = stage.config(**initial)
    start = start_in(config)
    assert start is not None
    report = stage.verify(number, initial=initial_table(start, config.table))
    assert report.clean, report.findings[:3]
    assert report.live_keys == len(stage.upstream.rows)


def completed(stage: Stage, *names: str, **how: Any) -> Run:
    with stage.running(**how) as run:
        run.reach(stage.upstream.barrier())
        stage.finish(run, *names)
        run.reach(stage.upstream.barrier())
    return run


@pytest.mark.parametrize(
    ("upstream_type", "beside"),
    [
        pytest.param(RealUpstream, False, id="in the data"),
        pytest.param(RealUpstream, True, id="beside", marks=pytest.mark.thorough),
        pytest.param(UpsertUpstream, True, id="rows by key"),
    ],
)
def test_the_outputs_hold_the_table_and_what_came_behind_its_offsets(
    set_up: SetUp, upstream_type: type[RealUpstream], beside: bool
) -> None:
    """Compacted and with other lanes after a restart. A barrier before the offsets of one partition is none."""
    stage = set_up(COPY, EVEN, partitions=3, beside=beside, upstream_type=upstream_type)
    upstream = stage.upstream
    for number in range(ROWS):
        upstream.put(row(number, "old"))
    upstream.barrier()
    change(upstream, "old too", range(300))
    initial = starting(stage)
    before = offsets_now(stage)
    upstream.barrier()
    initial["initial"]["delta"]["offsets"] = [offsets_now(stage)[0], *before[1:]]
    for number, offset in enumerate(initial["initial"]["delta"]["offsets"]):
        remove_beginning(upstream.kafka.bootstrap, upstream.name, offset, partition=number)
    change(upstream, "new", range(200, 1_200))
    completed(stage, "copy", "even", compaction_least_rows=100, **initial, **IN_PARTS)
    change(upstream, "newer", range(ROWS - 500, ROWS + 100))
    completed(stage, "copy", "even", lanes=1, **initial, **IN_PARTS)
    lawful(stage, initial, 0)
    lawful(stage, initial, 1)
    assert folded(stage) == upstream.rows
    kept = {key: (each[0], each[3]) for key, each in upstream.rows.items() if each[1] == "EU"}
    assert folded(stage, number=1) == kept


def test_a_copy_that_is_interrupted_goes_on_with_the_next_part(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = set_up(COPY)
    for number in range(ROWS):
        stage.upstream.put(row(number))
    initial = starting(stage, files=12)
    change(stage.upstream, "new", range(500))
    state = Storage(stage.config().state)
    seen = list[CopyProgress]()
    monkeypatch.setenv(failpoints.VARIABLE, "copied@1:raise")
    while not seen or not seen[-1].sorted:
        stage.fails(failpoints.Provoked, **initial, **IN_PARTS)
        copy = StateReader(state, stage.upstream.table).read().copy
        assert copy is not None
        seen.append(copy)
    assert len(seen) > 2
    assert [each.copied for each in seen[:-1]] == sorted({each.copied for each in seen})
    assert seen[-1] == CopyProgress(ROWS, ROWS, ROWS)
    monkeypatch.delenv(failpoints.VARIABLE)
    reported = list[CopyProgress | None]()
    service = stage.service(**initial, **IN_PARTS)
    service.on_copied = reported.append
    run = Run(service)
    run.reach(stage.upstream.barrier())
    stage.finish(run, "copy")
    run.stop()
    assert reported[0] == seen[-1]
    assert reported[-1] is None
    assert StateReader(state, stage.upstream.table).read().copy is None
    lawful(stage, initial)


def test_a_stop_during_the_copy_ends_between_two_parts(set_up: SetUp) -> None:
    stage = set_up(COPY)
    for number in range(ROWS):
        stage.upstream.put(row(number))
    initial = starting(stage)
    service = stage.service(**initial, **IN_PARTS)
    service.on_copied = lambda progress: service.stop()
    service.run()
    copy = StateReader(Storage(stage.config().state), stage.upstream.table).read().copy
    assert copy == CopyProgress(0, 0, ROWS)


def test_a_timestamp_is_looked_up_once(set_up: SetUp) -> None:
    stage = set_up(COPY, partitions=2)
    for number in range(100):
        stage.upstream.put(row(number))
    initial = starting(stage)
    offsets = offsets_now(stage)
    with RangeReader(stage.upstream.kafka) as reader:
        ranges = {number: (end - 1, end) for number, end in enumerate(offsets)}
        last_ms = max(
            record.timestamp()[1] for chunk in reader.read(stage.upstream.name, ranges) for record in chunk
        )
    await_condition(lambda: time.time_ns() // 1_000_000 > last_ms + 1, "a later millisecond")
    at = dt.datetime.fromtimestamp((last_ms + 1) / 1_000, dt.UTC).isoformat(timespec="milliseconds")
    delta = {**initial["initial"]["delta"], "timestamp": at}
    del delta["offsets"]
    change(stage.upstream, "new", range(50, 150))
    by_time = {"initial": {"delta": delta}}
    completed(stage, "copy", **by_time)
    start = start_in(stage.config(**by_time))
    assert start is not None
    assert list(start.offsets) == offsets
    lawful(stage, by_time)


def test_a_job_that_reads_the_topic_begins_at_the_offsets(set_up: SetUp) -> None:
    stage = set_up({"name": "history", "read": "topic", "output_partitions": 2}, COPY, partitions=2)
    for number in range(300):
        stage.upstream.put(row(number))
    stage.upstream.barrier()
    initial = starting(stage)
    change(stage.upstream, "new", range(100, 400))
    completed(stage, "history", "copy", **initial)
    lawful(stage, initial, 1)
    config = stage.config(**initial)
    start = start_in(config)
    assert start is not None
    stage.assert_lawful(0, initial=initial_table(start, config.table))
    changes = [
        record
        for partition in records(stage.upstream.kafka, config.jobs[0].output)
        for record in partition
        if header_of(record, BARRIER_HEADER) is None
    ]
    assert len(changes) == 300


def test_a_start_that_is_not_fit_is_refused_before_anything_is_made(set_up: SetUp) -> None:
    stage = set_up(COPY, partitions=2)
    stage.upstream.put(row(1))
    uri, version = delta_of(stage)
    end = max(offsets_now(stage))
    faults: list[tuple[dict[str, Any], Code]] = [
        ({"uri": uri + "-not"}, Code.INITIAL_TABLE_MISSING),
        ({"version": version + 1}, Code.INITIAL_VERSION_MISSING),
        ({"offsets": [0]}, Code.INITIAL_OFFSETS_MISFIT),
        ({"offsets": [0, end + 1]}, Code.INITIAL_OFFSETS_MISFIT),
    ]
    for fault, code in faults:
        delta = {"uri": uri, "version": version, "offsets": [0, 0], **fault}
        stage.fails(BackfillError, code, initial={"delta": delta})
    other = {
        **stage.upstream.table.to_dict(),
        "columns": {**stage.upstream.table.to_dict()["columns"], "x": "int"},
    }
    stage.fails(
        BackfillError,
        Code.INITIAL_TABLE_MISFIT,
        initial={"delta": {"uri": uri, "version": version, "offsets": [0, 0]}},
        table=other,
    )
    assert {path.name for path in (stage.folder / "state").iterdir()} == {"journal", "presence"}
    initial = {"initial": {"delta": {"uri": uri, "version": version, "offsets": offsets_now(stage)}}}
    completed(stage, "copy", **initial)  # as there is no entry in it
    lawful(stage, initial)


def test_another_start_than_the_state_has_is_refused(set_up: SetUp) -> None:
    stage = set_up(COPY, partitions=2)
    stage.upstream.put(row(1))
    initial = starting(stage)
    completed(stage, "copy", **initial)
    other = {"delta": {**initial["initial"]["delta"], "version": 0}}
    for declared in (None, other):
        stage.fails(BackfillError, Code.INITIAL_CHANGED, initial=declared)
    shutil.rmtree(initial["initial"]["delta"]["uri"])  # it is not needed any more
    completed(stage, "copy", **initial)


def test_a_lost_state_is_made_anew_from_the_same_table(set_up: SetUp) -> None:
    stage = set_up(COPY, partitions=2)
    for number in range(1_000):
        stage.upstream.put(row(number))
    initial = starting(stage)
    change(stage.upstream, "new", range(500, 1_500))
    completed(stage, "copy", **initial)
    shutil.rmtree(stage.folder / "state")
    change(stage.upstream, "newer", range(900, 1_600))
    service = stage.service(**initial)
    service.rebuild = True
    run = Run(service)
    run.reach(stage.upstream.barrier())
    run.reach(stage.upstream.barrier())
    run.stop()
    lawful(stage, initial)
    assert folded(stage) == stage.upstream.rows
