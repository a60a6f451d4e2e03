"""Owners of a state: their signs of life, the wait of one that was fenced, and the end of the one before."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from schemas.errors import Code, ConfigError, InputError
from schemas.settings.config import ServiceConfig
from state.journal import Journal
from state.small_files import PRESENCE_FOLDER, alive_file, last_seen_ms
from state.storage import Storage
from state.values.last_end import EndKind, FaultReport, LastEnd
from streaming.protocol.lanes.redelivery import LogResets
from streaming.service.events import EventKind
from streaming.service.presence import Presence, instance_name
from streaming.service.suspension import Decisions, Suspension, TableFaults
from streaming.service.vitals import Vitals
from tests.kit.listed_requests import ListedRequests
from tests.kit.reports import TABLE


def never() -> bool:
    return False


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def presence(storage: Storage) -> Presence:
    return Presence(storage, gone_s=1.5, beat_s=0.1)


def test_who_was_not_fenced_takes_over_at_once_though_the_owner_lives(presence: Presence) -> None:
    with presence.shown("successor"):
        assert presence.await_turn("first", "successor", never)
        presence.note_fenced("first", "successor")
        assert presence.await_turn("another instance", "successor", never)
        assert presence.await_turn("first", "a third owner", never)


def test_who_was_fenced_waits_until_the_successor_is_gone(presence: Presence) -> None:
    presence.note_fenced("first", "successor")
    waited = threading.Event()
    with presence.shown("successor"):

        def wait() -> None:
            presence.await_turn("first", "successor", never)
            waited.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert not waited.wait(2.5)  # longer than an owner without a sign of life is waited for
    assert waited.wait(30)
    thread.join()
    assert presence.await_turn("first", "successor", never)


def test_a_successor_that_was_killed_counts_as_gone(presence: Presence, storage: Storage) -> None:
    presence.note_fenced("first", "successor")
    presence._write(next(iter(_alive_files("successor"))), "7")
    assert presence.await_turn("first", "successor", never)
    assert not list((Path(storage.root) / PRESENCE_FOLDER).glob("*.fenced"))


def test_an_owner_whose_sign_rises_is_refused_on_a_terminal_and_one_that_is_dead_is_not(
    storage: Storage,
) -> None:
    presence = Presence(storage, beat_s=1.0)  # a busy machine may be late by a part of a beat
    with presence.shown("owner"):
        with pytest.raises(ConfigError) as caught:
            presence.refuse_living("owner", never)
        assert last_seen_ms(storage, "owner") is not None
    assert (caught.value.code, "--take-over" in caught.value.next_step) == (Code.USAGE, True)
    assert last_seen_ms(storage, "owner") is None
    presence.refuse_living("owner", never)
    presence._write(next(iter(_alive_files("owner"))), "7")  # killed
    presence.refuse_living("owner", never)
    assert last_seen_ms(storage, "owner") is not None


def _alive_files(owner: str) -> list[str]:
    from state.small_files import alive_file

    return [alive_file(owner)]


def test_a_stop_ends_the_wait(presence: Presence) -> None:
    presence.note_fenced("first", "successor")
    with presence.shown("successor"):
        assert not presence.await_turn("first", "successor", lambda: True)


def test_a_note_that_is_old_or_damaged_counts_for_nothing(
    presence: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    with presence.shown("successor"):
        presence.note_fenced("first", "successor")
        monkeypatch.setattr("time.time", lambda: 9e9)
        assert presence.await_turn("first", "successor", never)
        monkeypatch.undo()
        from streaming.service.presence import _fenced

        presence._write(_fenced("first"), "{")
        assert presence.await_turn("first", "successor", never)


def test_an_orderly_end_leaves_no_sign_of_life(presence: Presence, storage: Storage) -> None:
    with presence.shown("owner"):
        assert list((Path(storage.root) / PRESENCE_FOLDER).glob("*.alive"))
    assert not list((Path(storage.root) / PRESENCE_FOLDER).glob("*.alive"))


def test_an_instance_has_the_same_name_at_its_next_start() -> None:
    assert instance_name() == instance_name()


FORMER, LONG_AGO_S = "the one before", 3_000


@dataclass
class NoBatches:
    finished_epoch: int = 5


def no_config() -> ServiceConfig:
    raise AssertionError("nobody alters the table")


def found_by_a_start(storage: Storage) -> list[tuple[EventKind, str]]:
    """The events of a start behind `FORMER`, but for its own."""
    journal = Journal(storage, TABLE)
    journal.take_over("me", "{}")
    vitals = Vitals("up", 1_000, late_s=30.0, injects=True)
    suspension = Suspension(ListedRequests([]), "me")
    decisions = Decisions(frozenset(), LogResets(False, 0))
    faults = TableFaults(True, suspension, decisions, vitals, "me", threading.Event(), no_config)
    faults.owns(journal, NoBatches())  # type: ignore[arg-type]
    faults.note_silence(FORMER, storage)
    return [(e.kind, e.text) for e in vitals.events.since_an_hour(0.0) if e.kind is not EventKind.STARTED]


def owned(storage: Storage, end: LastEnd | None = None) -> None:
    journal = Journal(storage, TABLE)
    journal.take_over(FORMER, "{}")
    if end is not None:
        journal.write_end(end)


def seen(storage: Storage, ago_s: float) -> None:
    """A sign of life that `FORMER` has left."""
    file = Path(storage.root) / PRESENCE_FOLDER / alive_file(FORMER)
    file.parent.mkdir()
    file.write_text("7")
    at_s = file.stat().st_mtime - ago_s
    os.utime(file, (at_s, at_s))


def test_an_end_that_the_state_has_is_an_event_with_its_code(storage: Storage) -> None:
    fault = FaultReport.from_error(InputError(Code.UNKNOWN_OP, where="up-0@7", found="9 bytes"))
    owned(storage, LastEnd(EndKind.FAILED, FORMER, 1_000, 1_000, 5, fault))
    ((kind, text),) = found_by_a_start(storage)
    assert kind is EventKind.ENDED
    assert text.startswith("ended by an error: UNKNOWN_OP at up-0@7: found 9 bytes")


def test_an_owner_without_a_word_was_killed_or_was_taken_over_from(storage: Storage) -> None:
    owned(storage)
    seen(storage, LONG_AGO_S)
    assert found_by_a_start(storage) == [(EventKind.ENDED, "ended without a word (killed?)")]


def test_one_that_gave_a_sign_of_life_just_now_was_taken_over_from(storage: Storage) -> None:
    owned(storage)
    seen(storage, 1.0)
    expected = (EventKind.TAKEN_OVER, f"from {FORMER}, without a word of its end")
    assert found_by_a_start(storage) == [expected]
