"""An instance that was taken over from does not take the state back while its successor lives."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from schemas.errors import Code, ConfigError
from state.small_files import PRESENCE_FOLDER, last_seen_ms
from state.storage import Storage
from streaming.service.presence import Presence, instance_name


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
