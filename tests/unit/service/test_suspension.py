"""Suspension: each request is acted on once, also over a crash between its being taken and its effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import Code, EnvironmentProblem, InputError
from schemas.job import JobDefinition
from state.journal import Journal
from state.storage import Storage
from state.values.plan import JobState
from streaming.control.suspended import await_outcome
from streaming.protocol.lanes.redelivery import LogResets
from streaming.service.suspension import Decisions, Suspension
from streaming.source.barriers.injecting.control_requests import (
    DropAndTryAgain,
    EndProcess,
    MalformedRequestError,
    SuspendedAction,
    TryAgain,
    decode_suspended,
    encode_suspended,
)
from tests.kit.listed_requests import ListedRequests
from tests.kit.reports import TABLE

SKIP = TryAgain(frozenset({(2, 207_978)}))


def fault(offset: int = 7) -> InputError:
    return InputError(Code.UNKNOWN_OP, where=f"up-0@{offset}", found="9 bytes")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    storage = Storage(str(tmp_path / "state"))
    storage.prepare()
    journal = Journal(storage, TABLE)
    journal.take_over("me", "{}")
    return journal


def test_what_was_asked_before_is_not_acted_on(journal: Journal) -> None:
    requests = ListedRequests([SKIP])
    suspension = Suspension(requests, "me")
    suspension.begin(journal, fault(), 5)
    assert suspension.next_action() is None
    requests.actions.append(SKIP)
    assert suspension.next_action() == SKIP
    assert suspension.next_action() is None


def test_a_crash_before_the_effect_finds_the_request_again(journal: Journal) -> None:
    requests = ListedRequests([])
    first = Suspension(requests, "me")
    first.begin(journal, fault(), 5)
    requests.actions.append(SKIP)
    assert first.next_action() == SKIP
    again = Suspension(requests, "me, started again")
    assert again.begin(journal, fault(), 5).times == 2
    with pytest.raises(EnvironmentProblem):  # it has not read the request: that is no outcome
        await_outcome(lambda: journal.last_end, 0, 0)
    assert again.next_action() == SKIP
    again.begin(journal, fault(8), 5)
    end = await_outcome(lambda: journal.last_end, 0, 0)
    assert end is not None
    assert end.fault is not None
    assert end.fault.where == "up-0@8"


def test_a_request_that_changed_nothing_is_not_repeated_for_ever(journal: Journal) -> None:
    requests = ListedRequests([])
    suspension = Suspension(requests, "me")
    suspension.begin(journal, fault(), 5)
    requests.actions.append(SKIP)
    assert suspension.next_action() == SKIP
    suspension.begin(journal, fault(), 5)
    assert suspension.next_action() is None
    after_crash = Suspension(requests, "me, started again")
    after_crash.begin(journal, fault(), 5)
    assert after_crash.next_action() is None


def test_another_fault_asks_anew(journal: Journal) -> None:
    requests = ListedRequests([])
    Suspension(requests, "me").begin(journal, fault(), 5)
    requests.actions += [SKIP, SKIP]
    again = Suspension(requests, "me, started again")
    assert again.begin(journal, fault(8), 5).times == 1
    assert again.next_action() is None


def test_an_end_that_was_asked_for_is_not_found_by_the_next_start(journal: Journal) -> None:
    requests = ListedRequests([])
    suspension = Suspension(requests, "me")
    end = suspension.begin(journal, fault(), 5)
    requests.actions.append(EndProcess())
    assert suspension.next_action() == EndProcess()
    suspension.settle(journal, end)
    again = Suspension(requests, "me, started again")
    again.begin(journal, fault(), 5)
    assert again.next_action() is None


def test_a_further_fault_joins_the_first_once(journal: Journal) -> None:
    suspension = Suspension(ListedRequests([]), "me")
    end = suspension.begin(journal, fault(), 5)
    end = suspension.join(journal, end, Code.DATA_LOST)
    end = suspension.join(journal, end, Code.DATA_LOST)
    end = suspension.join(journal, end, Code.UNKNOWN_OP)
    assert journal.last_end == end
    assert end.joined == (Code.DATA_LOST,)
    assert end.fault is not None
    assert end.fault.code is Code.UNKNOWN_OP


def test_a_job_that_the_state_has_had_does_not_come_back_from_the_configuration() -> None:
    decisions = Decisions(frozenset(), LogResets())
    open_, _, late = jobs = [
        JobDefinition.declare({"name": name, "output": f"{name}-out"}, TABLE)
        for name in ("open", "dropped", "late")
    ]
    decisions.add(DropAndTryAgain("dropped"))
    assert decisions.still_configured(jobs) == (open_, late)
    decisions.batch_done([JobState(open_, 1, opened=True), JobState(late, 1)])
    assert decisions.still_configured(jobs) == (late,)
    assert not decisions.dropped  # one that is created under the name is another job


@pytest.mark.parametrize(
    "action",
    [
        TryAgain(),
        SKIP,
        TryAgain(frozenset({(0, 0), (10, 2**50)}), True),
        DropAndTryAgain("copy"),
        EndProcess(),
    ],
)
def test_requests_cross_the_wire(action: SuspendedAction) -> None:
    assert decode_suspended(encode_suspended("an id", action)) == action


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"id": 1, "suspended": {"stop": {}}}',
        b'{"suspended": {"stop": {}}}',
        b'{"id": "a", "suspended": {}}',
        b'{"id": "a", "suspended": {"stop": {}, "drop": "b"}}',
        b'{"id": "a", "suspended": {"stop": {}}, "more": 1}',
        b'{"id": "a", "suspended": {"resume": {"skip_records": ["7"]}}}',
        b'{"id": "a", "suspended": {"resume": {"skip_records": ["-1@7"]}}}',
        b'{"id": "a", "suspended": {"resume": {"skip_records": "1@7"}}}',
        b'{"id": "a", "suspended": {"resume": {"skip": []}}}',
        b'{"id": "a", "suspended": {"resume": {"accept_log_reset": 1}}}',
        b'{"id": "a", "suspended": {"drop": ""}}',
        b'{"id": "a", "suspended": {"stop": 1}}',
    ],
)
def test_anything_else_is_malformed(content: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        decode_suspended(content)


def test_a_mutation_is_another_kind() -> None:
    assert decode_suspended(b'{"id": "a", "mutation": "Stop"}') is None
