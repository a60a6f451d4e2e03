"""The status of the work beside the batches, of the disk, of the upstream and of a job's kind."""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.epoch import NO_EPOCH, next_epoch
from schemas.job import JobDefinition
from schemas.settings.config import check
from schemas.table import declare
from state.initial.chunks import CHUNKS_PATH
from state.replica import BASE_PATH, LOG_PATH, BaseFile, ReplicaFiles
from state.storage import DataFile, Storage
from state.values.plan import JobState
from streaming.compaction.maintenance import Turn
from streaming.kafka.topics import Watermarks
from streaming.observe import state_size
from streaming.observe.models import DiskStatus
from streaming.observe.state_size import (
    LEAST_FREE_BYTES,
    LEAST_ROWS_FREE_BYTES,
    MOST_PAUSE_S,
    PAUSE_S,
    StateSize,
    taken_bytes,
)
from streaming.observe.status_cache import StatusCache
from streaming.observe.wiring import source_of
from streaming.service.vitals import Vitals
from tests.kit.reports import SOURCE, TABLE, barrier, job, report

AT_MS = 1_800_000_000_000
FILES = ReplicaFiles(
    7, {0: (BaseFile("a", 0, 10, 3_000), BaseFile("b", 0, 9, 500))}, (DataFile("c", 200, 5),)
)


def a_cache(**over: object) -> StatusCache:
    vitals = Vitals("up", 1_000, late_s=30.0, injects=False)
    return StatusCache("up", "orders", "me", 4, vitals, SOURCE, **over)  # type: ignore[arg-type]


class Works:
    """In place of a compactor."""

    def __init__(self, *turns: Turn[bool]) -> None:
        self._turns = turns

    def maintenance(self) -> tuple[object, ...]:
        return tuple(turn.maintenance() for turn in self._turns)


def test_the_status_tells_what_is_under_way_and_what_fails() -> None:
    cache, may = a_cache(), threading.Event()
    assert cache.status().maintenance == []
    compaction, cleaning = Turn[bool]("compaction", "see the disk"), Turn[bool]("cleaning", "see the rights")
    works = Works(compaction, cleaning)
    cache.vitals.attach(None, None, works)  # type: ignore[arg-type]
    compaction.begin(lambda: may.wait(30))
    cleaning.begin(lambda: bool(1 // 0))
    cleaning.wait()
    cleaning.take()
    first, second = cache.status().maintenance
    assert (first.work, first.failures, second.running_s) == ("compaction", 0, None)
    assert first.running_s is not None
    assert (second.failures, second.error, second.next_step) == (1, "ZeroDivisionError", "see the rights")
    assert 0 < second.again_in_s <= 1
    cache.vitals.detach()
    assert cache.status().maintenance == []
    may.set()
    compaction.close()
    cleaning.close()


def test_the_age_of_the_compaction_goes_on_with_time() -> None:
    now_s = [0.0]
    cache = a_cache(clock=lambda: AT_MS / 1_000 + 0.5, steady=lambda: now_s[0])
    last = report(at_ms=AT_MS)
    cache.note(last)
    assert cache.status().compaction_age_s is None
    compacted = replace(last.files, compacted_epoch=next_epoch(NO_EPOCH, AT_MS - 90_000))
    cache.note(replace(last, files=compacted))
    now_s[0] = 10.0
    assert cache.status().compaction_age_s == pytest.approx(100.5)


def test_the_lag_is_what_no_batch_holds() -> None:
    cache = a_cache()
    cache.newest = lambda: [(barrier(AT_MS), 0), (None, 2), (None, 0)]
    assert [each.lag for each in cache.status().partitions] == [None, None, None]
    cache.note(report())  # up to offset 9 in both
    cache.vitals.broker_answers([Watermarks(0, 109, 120), Watermarks(0, 7, 7), Watermarks(0, 7, 7)])
    assert [each.lag for each in cache.status().partitions] == [100, 0, None]
    assert [each.held_offset for each in cache.status().partitions] == [109, None, None]


def test_every_kind_of_backfill_is_named() -> None:
    def named(table: dict[str, object], **over: object) -> str:
        declared = declare({"name": "orders", "columns": {"id": "bigint"}, "primary_key": ["id"], **table})
        definition = JobDefinition.declare({"name": "copy", "output": "copy-out", **over}, declared)
        cache = a_cache()
        cache.note(report([JobState(definition.with_partitions(2), 1, opened=True)]))
        return cache.status().jobs[0].kind

    assert named({}) == "arrangement"
    assert named({"distribution": "upstream"}) == "no-shuffle"
    assert named({}, read="topic") == "source"


def test_the_source_is_as_it_is_configured(tmp_path: Path) -> None:
    declared = {
        "upstream": {"topic": "orders", "format": "upsert"},
        "state": "state",
        "table": TABLE.to_dict(),
        "barrier_interval": "500ms",
        "initial": {"delta": {"uri": "s3://user:secret@bucket/t", "version": 3, "offsets": [1, 2]}},
    }
    source = source_of(check(declared, path=tmp_path / "config.yaml"))
    assert (source.form, source.barriers, source.barrier_interval_s) == ("upsert json", "inject", 0.5)
    assert (source.barrier_topic, source.control_topic) == ("orders.barriers", "orders.control")
    assert source.start == "version 3 of a Delta table"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A folder that looks like a state, and rows by key of it."""
    for number, path in enumerate((BASE_PATH, LOG_PATH, "journal/_delta_log", "progress", CHUNKS_PATH)):
        (tmp_path / "state" / path).mkdir(parents=True)
        (tmp_path / "state" / path / "file").write_bytes(b"x" * 10_000 * (number + 1))
    rows = tmp_path / "tmp" / "of-this-state" / "0-4"
    rows.mkdir(parents=True)
    with (rows / "data.mdb").open("wb") as file:
        file.truncate(1 << 40)
    return tmp_path / "state"


def measured(size: StateSize, files: ReplicaFiles | None = None) -> DiskStatus:
    size.look(files)
    size.wait(30)
    found = size.look(files)
    assert found is not None
    return found


def test_each_part_of_the_state_is_measured_in_blocks(state: Path) -> None:
    size = StateSize(Storage(str(state)), lambda: state.parent / "tmp" / "of-this-state")
    found = measured(size)
    parts = (
        found.base_bytes,
        found.log_bytes,
        found.journal_bytes,
        found.progress_bytes,
        found.initial_bytes,
    )
    for number, taken in enumerate(parts):
        least = 10_000 * (number + 1)
        assert taken is not None
        assert least <= taken < least + 10_000
    assert found.rows_bytes == 0, "a terabyte of holes"
    assert found.rows_free_bytes is not None
    assert found.free_bytes is not None
    assert found.disk_bytes is not None
    assert 0 < found.free_bytes <= found.disk_bytes
    # One disk, asked twice, which others write to.
    assert abs(found.rows_free_bytes - found.free_bytes) < found.disk_bytes / 100
    assert measured(StateSize(Storage(str(state)), lambda: None)).rows_bytes is None
    assert (
        measured(StateSize(Storage(str(state)), lambda: state.parent / "tmp" / "of-another")).rows_bytes
        is None
    )


def test_what_is_deleted_meanwhile_ends_no_measurement(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = os.walk
    monkeypatch.setattr(
        os, "walk", lambda top: [(place, there, [*names, "gone"]) for place, there, names in walk(top)]
    )
    assert (taken_bytes(state / BASE_PATH) or 0) >= 10_000
    assert taken_bytes(state / "nothing") is None


def test_it_is_measured_by_one_thread_and_less_often_where_that_takes_long(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, may = [0.0], threading.Event()
    began: list[Path] = []

    def slow(folder: Path) -> int:
        began.append(folder)
        may.wait(30)
        return 1

    monkeypatch.setattr(state_size, "taken_bytes", slow)
    size = StateSize(Storage(str(state)), lambda: None, lambda: now_s[0])
    for now_s[0] in (0.0, MOST_PAUSE_S, 300.0):  # the first one goes on all the time
        assert size.look(None) is None
    may.set()
    size.wait(30)
    assert len(began) == 5
    for now_s[0], measurements in (
        (300 + MOST_PAUSE_S - 1, 1),
        (300 + MOST_PAUSE_S, 2),
        (300 + MOST_PAUSE_S + PAUSE_S - 1, 2),
        (300 + MOST_PAUSE_S + PAUSE_S, 3),
    ):
        measured(size)
        assert len(began) == 5 * measurements
    assert measured(size).age_s == 0


def test_a_disk_is_low_where_a_compaction_may_not_fit(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [LEAST_FREE_BYTES]

    def usage(_: Path) -> object:
        return type("Usage", (), {"free": free[0], "total": 1 << 50})

    monkeypatch.setattr(shutil, "disk_usage", usage)

    def is_low(files: ReplicaFiles | None) -> bool:
        return measured(StateSize(Storage(str(state)), lambda: None), files).is_low

    assert not is_low(FILES)
    large = replace(FILES, log=(DataFile("c", LEAST_FREE_BYTES, 5),))
    assert is_low(large)
    free[0] += 3_500
    assert not is_low(large)
    free[0] = LEAST_FREE_BYTES - 1
    assert is_low(None)


@pytest.mark.parametrize("at", ["state", "s3://bucket/state"])
def test_rows_by_key_are_low_where_they_may_outgrow_their_disk(
    state: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, taken = [LEAST_ROWS_FREE_BYTES], [0]
    usage = type("Usage", (), {"free": property(lambda _: free[0]), "total": 1 << 50})()
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    monkeypatch.setattr(state_size, "taken_bytes", lambda folder: taken[0])
    rows = state.parent / "tmp" / "of-this-state"

    def is_low() -> bool:
        root = str(state) if at == "state" else at
        size = StateSize(Storage(root), lambda: rows)
        size.look(FILES)
        size.wait(30)
        found = size.look(FILES)
        assert found is not None
        assert (found.rows_bytes, found.rows_free_bytes) == (taken[0], free[0])
        return found.rows_low

    assert not is_low()
    free[0] -= 1
    assert is_low()
    free[0] = 1 << 30
    taken[0] = 1 << 32
    assert not is_low()
    taken[0] += 4
    assert is_low()


def test_of_an_object_store_is_reported_what_needs_no_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storage, "filesystem", property(lambda _: pytest.fail("it asked the store")))
    size = StateSize(Storage("s3://bucket/state"), lambda: None)
    assert size.look(None) is None
    found = size.look(FILES)
    assert found is not None
    assert (found.base_bytes, found.log_bytes, found.journal_bytes, found.free_bytes) == (
        3_500,
        200,
        None,
        None,
    )
    assert not found.is_low


def test_to_ask_for_the_status_waits_for_no_disk(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may = threading.Event()

    def away(_: Path) -> int:
        may.wait(30)
        return 1

    monkeypatch.setattr(state_size, "taken_bytes", away)
    cache = a_cache()
    cache.disk = StateSize(Storage(str(state)), lambda: None).look
    began_s = time.monotonic()
    cache.note(report([job("copy")]))
    assert cache.status().disk is None
    assert time.monotonic() - began_s < 10
    may.set()
