"""The last end: counted while the same fault is met, over with the next batch, and kept by the journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from schemas.errors import Code, Fenced, InputError
from state.journal import Journal
from state.storage import Storage
from state.values.last_end import EndKind, FaultReport, LastEnd
from tests.kit.reports import TABLE, report

FAULT = FaultReport.from_error(InputError(Code.UNKNOWN_OP, where="up-0@7", found="9 bytes"))
END = LastEnd(EndKind.SUSPENDED, "me", 2_000, 2_000, 5, FAULT, joined=(Code.DATA_LOST,), requests_from=3)


@pytest.mark.parametrize(
    ("before", "times", "since_ms"),
    [
        (None, 1, 2_000),
        (replace(END, at_ms=1_500, since_ms=1_000, times=4), 5, 1_000),
        (replace(END, kind=EndKind.FAILED, since_ms=1_000), 2, 1_000),
        (replace(END, epoch=4, since_ms=1_000), 1, 2_000),
        (replace(END, fault=replace(FAULT, where="up-0@8"), since_ms=1_000), 1, 2_000),
        (replace(END, fault=replace(FAULT, code=Code.DATA_LOST), since_ms=1_000), 1, 2_000),
        (replace(END, fault=None, since_ms=1_000), 1, 2_000),
    ],
)
def test_the_same_fault_without_a_batch_between_is_counted(
    before: LastEnd | None, times: int, since_ms: int
) -> None:
    found = END.after(before)
    assert (found.times, found.since_ms, found.at_ms) == (times, since_ms, 2_000)


def test_an_end_without_an_error_is_never_counted() -> None:
    stopped = LastEnd(EndKind.STOPPED, "me", 2_000, 2_000, 5)
    assert stopped.after(replace(stopped, at_ms=1_000, since_ms=1_000)).times == 1


def test_it_counts_until_the_next_finished_batch() -> None:
    assert END.counts(5)
    assert not END.counts(6)


@pytest.mark.parametrize("end", [END, LastEnd(EndKind.SILENT, "you", 1, 1, 0)])
def test_json_gives_it_back(end: LastEnd) -> None:
    assert LastEnd.from_json(end.to_json()) == end


def test_a_later_version_may_say_more() -> None:
    assert LastEnd.from_json(END.to_json().replace('"times"', '"mood": 7, "times"')) == END


def test_the_journal_keeps_it_through_plans_and_owners(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "state"))
    storage.prepare()
    journal = Journal(storage, TABLE)
    assert journal.last_end is None
    journal.take_over("me", "{}")
    assert journal.last_end is None
    journal.write_end(END)
    plan = report(at_ms=1_800_000_000_000).plan
    journal.write_plan(plan)
    successor = Journal(storage, TABLE)
    assert successor.last_end == END
    assert successor.current is not None
    assert successor.current.plan == plan
    successor.take_over("you", "{}")
    assert Journal(storage, TABLE).last_end == END
    # An instance that was taken over from can't say any more how it ended.
    with pytest.raises(Fenced):
        journal.write_end(replace(END, times=2))
    assert Journal(storage, TABLE).last_end == END
