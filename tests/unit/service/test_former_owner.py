"""Events of a start about the owner before it: its own word, none, or that nobody can know."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import Code, InputError
from schemas.settings.config import ServiceConfig
from state.journal import Journal
from state.small_files import PRESENCE_FOLDER, alive_file
from state.storage import Storage
from state.values.last_end import EndKind, FaultReport, LastEnd
from streaming.protocol.lanes.redelivery import LogResets
from streaming.service.events import EventKind
from streaming.service.suspension import Decisions, Suspension, TableFaults
from streaming.service.vitals import Vitals
from tests.kit.listed_requests import ListedRequests
from tests.kit.reports import TABLE

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
