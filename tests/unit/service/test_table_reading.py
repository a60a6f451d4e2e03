"""Parts between readers of a database and batches: staged chunks, proofs, and the pace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Code, StateError
from schemas.settings.config import ServiceConfig, check
from state.initial.chunks import staged_rows
from state.initial.start import DatabaseStart, Identity, Survey
from state.journal import Entry
from state.small_files import ReadPace, keep_pace, kept_pace
from state.storage import Storage
from state.values.chunks import Chunk, KeyRange, Streamed, TransactionSnapshot
from state.values.reading import Reading
from streaming.cli.app import main
from streaming.core.chunk_events import Proofs
from streaming.kafka.clients import KafkaSettings
from streaming.protocol.table_read import TableReading
from streaming.service.initial import staging
from streaming.service.initial.staging import Staging
from streaming.service.initial.start import start_of
from tests.kit.table_reading import FIRST, RANGES, SURVEY, TABLE, TAIL, reading
from tests.unit.state.test_journal import plan


def chunk(after: int | None, upto: int, rows: int = 1, written_lsn: int = 100) -> Chunk:
    keys = KeyRange(None if after is None else (after,), (upto,))
    return Chunk(keys, TransactionSnapshot(12, 12), written_lsn, rows)


@pytest.fixture
def ticks() -> Iterator[int]:
    return iter(range(1_000, 2_000))


def staged(storage: Storage, ticks: Iterator[int]) -> Staging:
    return Staging(storage, TABLE, SURVEY, SURVEY.begin(), lambda: next(ticks))


def test_the_first_reading_has_the_ranges_and_what_is_behind_the_last_key() -> None:
    read = SURVEY.begin()
    assert [each.keys for each in read.unread] == [*RANGES, TAIL.keys]
    assert read.read(TAIL).unread[-1].keys == RANGES[-1]
    whole = Survey((KeyRange(),), None, 5, 4_096, FIRST).begin()
    assert [each.keys for each in whole.unread] == [KeyRange()]
    empty = Survey((), Chunk(KeyRange(), FIRST, 9, 0), 0, 0, FIRST)
    assert empty.tail is not None
    assert empty.begin().read(empty.tail).unread == ()


def test_a_state_remembers_what_was_decided() -> None:
    identity = Identity("7", "shop", 16_384)
    start = DatabaseStart(
        {"table": "t", "slot": "s", "mode": "chunks"}, (4, 0), identity, SURVEY, "connect", "p"
    )
    assert DatabaseStart.from_binding(json.dumps(start.bound()), TABLE) == start
    assert DatabaseStart.from_binding("{}", TABLE) is None


def test_a_chunk_is_taken_once_with_its_files_and_the_tail_without(
    storage: Storage, ticks: Iterator[int]
) -> None:
    found = staged(storage, ticks)
    pieces = [found.keep(pa.table({"id": [number], "note": ["x"]})) for number in (1, 2)]
    since_ms = found.since_ms()
    assert since_ms is not None
    found.finished(chunk(None, 2, rows=2), pieces)
    tail, first = found.take()
    assert (tail.chunk, tail.files) == (TAIL, ())
    assert first.files == tuple(pieces)
    rows = staged_rows(storage, TABLE, first.files, range(4))
    assert sorted(rows["id"].to_pylist()) == [1, 2]
    assert found.take() == []
    assert [each.keys for each in found.unreleased] == [TAIL.keys, KeyRange(None, (2,))]


def test_what_is_not_taken_is_found_by_the_time_at_which_it_began(
    storage: Storage, ticks: Iterator[int]
) -> None:
    found = staged(storage, ticks)
    assert found.since_ms() == 1_000  # the tail
    found.take()
    assert not found.since_ms()
    piece = found.keep(pa.table({"id": [1], "note": ["x"]}))
    began_ms = found.since_ms()
    assert began_ms == 1_001
    found.keep(pa.table({"id": [1], "note": ["x"]}))  # the first one's chunk broke off
    assert found.since_ms() == began_ms
    found.finished(chunk(None, 1), [piece])
    assert found.since_ms() == began_ms
    found.take()
    assert found.since_ms() is None


def test_readers_are_held_up_by_chunks_that_nobody_takes(
    storage: Storage, ticks: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MOST_UNTAKEN", 3)
    found = staged(storage, ticks)
    found.finished(chunk(None, 1), [])
    assert found.has_room(KeyRange((1,), (10,)))
    found.finished(chunk(1, 2), [])
    assert not found.has_room(KeyRange((2,), (10,)))
    found.take()
    assert found.has_room(KeyRange((2,), (10,)))


def test_a_range_that_waits_for_a_lower_one_does_not_hold_that_up(
    storage: Storage, ticks: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MOST_UNRELEASED", 4)
    monkeypatch.setattr(staging, "_LEAST_OF_A_RANGE", 1)
    found, read = staged(storage, ticks), SURVEY.begin()
    for after, upto in ((10, 11), (11, 12)):
        found.finished(chunk(after, upto), [])
    for finished in found.take():
        read = read.read(finished.chunk)
    assert not found.has_room(KeyRange((12,), (20,)))
    assert found.has_room(KeyRange(None, (10,)))
    for low in (chunk(None, 3), chunk(3, 10)):
        found.finished(low, [])
    assert not found.has_room(KeyRange((3,), (10,)))
    for finished in found.take():
        read = read.read(finished.chunk)
    proof = Streamed(100, (5,))
    due = read.due([5], [proof])
    assert due == 4
    found.released(read.release(due))
    assert found.has_room(KeyRange((12,), (20,)))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_proofs_that_are_kept_release_what_all_of_them_would(steps: list[tuple[bool, int, int]]) -> None:
    """Of a chunk that is there when its proof comes, as early; of any, by the newest."""
    proofs, every, chunks = Proofs(), list[Streamed](), list[Chunk]()
    lsn = end = 1
    known_at: dict[int, int] = {}
    for is_proof, by, more in steps:
        if is_proof:
            lsn, end = lsn + by, end + more
            every.append(Streamed(lsn, (end,)))
            proofs.add(every[-1])
        else:
            known_at[len(chunks)] = len(every)
            chunks.append(chunk(None, 1, written_lsn=lsn + by))
        proofs.keep_for(chunks)
    assert len(proofs.kept) <= len(chunks) + 1
    for number, each in enumerate(chunks):
        reaching = [proof.ends for proof in every if proof.lsn >= each.written_lsn]
        kept = [proof.ends for proof in proofs.kept if proof.lsn >= each.written_lsn]
        assert bool(kept) == bool(reaching)
        before = [proof for proof in every[: known_at[number]] if proof.lsn >= each.written_lsn]
        if reaching and not before:
            assert min(kept) == min(reaching)


def test_a_pace_that_was_said_holds_at_the_next_start(storage: Storage) -> None:
    assert kept_pace(storage) is None
    keep_pace(storage, ReadPace(500, paused=True))
    assert kept_pace(storage) == ReadPace(500, paused=True)
    with storage.filesystem.open_output_stream(storage.path("initial", "pace.json")) as torn:
        torn.write(b'{"rate_limit": 5')
    assert kept_pace(storage) is None


def test_before_it_goes_on_it_says_what_there_is_and_takes_a_pace(storage: Storage) -> None:
    found = reading(storage)
    assert found.begin() == SURVEY.begin()
    assert (found.take(), found.proofs(), found.since_ms()) == ([], (), None)
    found.throttle(None)
    found.pause(True)
    status = found.status()
    assert (status.rows, status.of, status.rate_limit, status.paused) == (0, 20, None, True)
    assert reading(storage).status() == status


def test_what_was_read_is_not_read_again(storage: Storage) -> None:
    found = reading(storage)
    read = found.begin().read(chunk(None, 10, rows=15)).read(chunk(10, 20, rows=5)).read(TAIL)
    found.go_on(read)
    assert found.take() == []
    assert (found.status().rows, found.status().waiting_rows) == (20, 20)
    found.close()
    assert not found.is_on


def declared(folder: Path, **over: Any) -> ServiceConfig:
    (folder / "dsn").write_text("host=127.0.0.1")
    (folder / "dsn").chmod(0o600)
    start = {"dsn_file": "dsn", "table": "t", "slot": "s", **over}
    found = {
        "upstream": {"topic": "t", "format": "debezium"},
        "state": "state",
        "table": TABLE.to_dict(),
        "initial": {"postgres": start},
    }
    return check(found, path=folder / "config.yaml")


def test_another_start_than_the_state_has_is_refused_without_a_look_at_any_server(tmp_path: Path) -> None:
    kept = {"table": "t", "slot": "s", "mode": "chunks"}
    start = DatabaseStart(kept, (4, 0), Identity("7", "shop", 16_384), SURVEY)
    nowhere = KafkaSettings("127.0.0.1:1")

    def begun(config: ServiceConfig, binding: dict[str, Any]) -> object:
        return start_of(config, Entry("me", 1, json.dumps(binding), None), nowhere, state="state")

    assert (
        begun(declared(tmp_path, chunk_rows=5, connector_url="http://c/connectors/a"), start.bound()) == start
    )
    for config, binding in [
        (declared(tmp_path, slot="other"), start.bound()),
        (declared(tmp_path, mode="whole"), start.bound()),
        (declared(tmp_path), {}),
    ]:
        with pytest.raises(StateError) as caught:
            begun(config, binding)
        assert caught.value.code is Code.INITIAL_CHANGED
    delta = check(
        {"upstream": "t", "state": "state", "table": TABLE.to_dict()}, path=tmp_path / "config.yaml"
    )
    with pytest.raises(StateError, match="expected table t of PostgreSQL and slot s, as the state says"):
        begun(delta, start.bound())


def test_verify_of_what_was_read_once_is_refused_before_any_topic_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared(tmp_path)
    found = {
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "upstream": {"topic": "t", "format": "debezium"},
        "state": "state",
        "table": TABLE.to_dict(),
        "jobs": [{"name": "copy", "output": "copy"}],
        "initial": {"postgres": {"dsn_file": "dsn", "table": "t", "slot": "s"}},
    }
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(found))
    for options in ([], ["--output", "copy"]):
        assert main(["verify", "-c", str(path), *options]) == 2
        assert "INITIAL_READ_ONCE at initial.postgres: found a start from table t" in capsys.readouterr().err


def test_a_reading_is_over_with_a_batch_that_is_done_again(storage: Storage) -> None:
    reads, read = reading(storage), SURVEY.begin()
    for keys in (*RANGES, TAIL.keys):
        read = read.read(Chunk(keys, FIRST, 100, 0))
    last = replace(plan(1), reading=Reading(read, ((),) * 3, 0, due=3))
    state = TableReading(storage, TABLE, reads)
    state.begin_from(last)
    assert state.is_on
    with structlog.testing.capture_logs() as logged:
        state.settle(last)
    assert (state.is_on, reads.is_on) == (False, False)
    assert [line["event"] for line in logged] == ["table_is_read"]


def test_a_reading_that_was_over_before_is_over(storage: Storage) -> None:
    reads = reading(storage)
    state = TableReading(storage, TABLE, reads)
    state.begin_from(plan(1))
    assert (state.is_on, reads.is_on) == (False, False)


def test_plan_of_a_start_asks_the_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dsn").write_text("host=127.0.0.1 port=1 password=planted")
    (tmp_path / "dsn").chmod(0o600)
    found = {
        "upstream": {"topic": "t", "format": "debezium"},
        "state": "state",
        "table": TABLE.to_dict(),
        "initial": {"postgres": {"dsn_file": "dsn", "table": "t", "slot": "s"}},
    }
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(found))
    assert main(["plan", "-c", str(path), "--name", "copy", "--output", "copy"]) == 7
    said = capsys.readouterr().err
    assert "POSTGRES_UNREACHABLE at initial.postgres.dsn_file" in said
    assert "planted" not in said
