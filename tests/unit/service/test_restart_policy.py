"""The time for which trouble is waited out: from its beginning, by a clock of the test, whenever the last batch was."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from schemas.errors import BackfillError, Code, EnvironmentProblem, TopicError
from streaming.service.trouble import CALM_S, LIMIT_S, MOST_RESTARTS, RestartPolicy

HOUR_S = 3_600.0


def trouble(code: Code = Code.SPARK_FAILED) -> BackfillError:
    return EnvironmentProblem(
        code, found="a stream that ended", expected="one that goes on", next_step="wait"
    )


class Clock(threading.Event):
    """A clock that moves while somebody waits; `stop` at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.back_s = 0.0
        """The time from which the broker answers again."""

    def wait(self, timeout: float | None = None) -> bool:
        self.now_s += timeout or 0.0
        return self.is_set()

    def answers(self) -> bool:
        return self.now_s >= self.back_s

    def pass_(self, seconds: float) -> None:
        self.now_s += seconds


def restart_policy(clock: Clock, *, begun: bool = True) -> RestartPolicy:
    made = RestartPolicy(clock.answers, clock, clock=lambda: clock.now_s)
    if begun:
        made.begins()
    return made


@pytest.mark.parametrize("quiet_s", [0.0, 60.0, LIMIT_S + 60, 15 * 60.0, 10 * HOUR_S])
def test_trouble_is_waited_for_however_long_the_last_batch_is_ago(quiet_s: float) -> None:
    clock = Clock()
    tried = restart_policy(clock)
    tried.worked()
    clock.pass_(quiet_s)
    assert tried.wait(trouble())
    clock.back_s = clock.now_s + LIMIT_S - 30
    assert tried.wait(trouble(Code.BROKER_UNREACHABLE))


@pytest.mark.parametrize("batch_before", [True, False])
def test_trouble_that_lasts_ends_the_service_after_its_time(batch_before: bool) -> None:
    clock = Clock()
    tried = restart_policy(clock)
    if batch_before:
        tried.worked()
    clock.pass_(HOUR_S)
    clock.back_s = clock.now_s + HOUR_S
    began_s = clock.now_s
    with pytest.raises(EnvironmentProblem):
        tried.wait(trouble(Code.BROKER_UNREACHABLE))
    assert LIMIT_S < clock.now_s - began_s < LIMIT_S + 12


def test_with_barriers_an_hour_apart_each_outage_has_a_beginning_of_its_own() -> None:
    clock = Clock()
    tried = restart_policy(clock)
    for _ in range(24):
        tried.worked()
        for _ in range(MOST_RESTARTS):
            clock.pass_(HOUR_S / 10)
            clock.back_s = clock.now_s + LIMIT_S * 0.9
            assert tried.wait(trouble(Code.BROKER_UNREACHABLE))


def test_trouble_that_comes_again_at_once_is_the_same_trouble() -> None:
    clock = Clock()
    tried = restart_policy(clock)
    for _ in range(MOST_RESTARTS):
        assert tried.wait(trouble())
        clock.pass_(CALM_S / 10)
    with pytest.raises(EnvironmentProblem):
        tried.wait(trouble())


def test_trouble_that_comes_every_minute_or_two_ends_it_though_the_broker_answers() -> None:
    clock = Clock()
    tried = restart_policy(clock)
    for _ in range(MOST_RESTARTS):
        assert tried.wait(trouble())
        clock.pass_(CALM_S + 10)
    with pytest.raises(EnvironmentProblem):
        tried.wait(trouble())


def test_a_worker_that_is_lost_in_the_first_build_is_waited_for() -> None:
    assert restart_policy(Clock()).wait(trouble())


def test_a_transaction_that_somebody_left_open_is_waited_for() -> None:
    stalled = TopicError(Code.BARRIER_STALLED, found="a transaction", expected="its end", next_step="end it")
    assert restart_policy(Clock()).wait(stalled)


def test_before_the_state_is_taken_over_nothing_is_waited_for() -> None:
    for raised in map(trouble, (Code.BROKER_UNREACHABLE, Code.SPARK_FAILED)):
        with pytest.raises(EnvironmentProblem):
            restart_policy(Clock(), begun=False).wait(raised)


def test_what_cannot_pass_is_not_waited_for() -> None:
    clock = Clock()
    replaced = TopicError(Code.TOPIC_REPLACED, found="another", expected="the same", next_step="restore it")
    refused: list[Callable[[], BackfillError]] = [lambda: replaced, lambda: trouble(Code.AUTH_FAILED)]
    for made in refused:
        with pytest.raises(BackfillError):
            restart_policy(clock).wait(made())
    assert clock.now_s == 0


def test_a_stop_ends_the_wait() -> None:
    clock = Clock()
    clock.back_s = HOUR_S
    clock.set()
    assert not restart_policy(clock).wait(trouble())


def test_a_registry_is_waited_for_where_it_is_missing_and_nowhere_else() -> None:
    clock = Clock()
    back_s = 90.0
    tried = RestartPolicy(
        clock.answers, clock, registry_answers=lambda: clock.now_s >= back_s, clock=lambda: clock.now_s
    )
    tried.begins()
    assert tried.wait(trouble(Code.BROKER_UNREACHABLE))
    assert clock.now_s < 10
    assert tried.wait(trouble(Code.REGISTRY_UNREACHABLE))
    assert clock.now_s >= back_s
