"""A signal ends the block, whatever the interpreter was at when it came."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from streaming.runtime.signals import EndBySignal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_while_it_comes_up_a_signal_unwinds_the_block(number: signal.Signals) -> None:
    reached = False
    with EndBySignal():
        signal.raise_signal(number)
        reached = True
    assert not reached


def test_once_it_runs_it_is_asked_to_stop_and_once_it_ends_a_signal_changes_nothing() -> None:
    asked: list[str] = []
    with EndBySignal() as signals:
        signals.hand_over(lambda: asked.append("stop"))
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert asked == ["stop"]


class Deleted:
    """While it is deleted the signal comes; what is raised there, Python only reports."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(10))  # the handler runs between two bytecodes


class Faulty:
    def __del__(self) -> None:
        raise ValueError("not ours")


def await_never() -> None:
    """The longest time of a test, which an exception ends."""
    threading.Event().wait(60)


def test_a_signal_that_comes_where_nothing_can_be_raised_unwinds_the_block_a_little_later() -> None:
    reached = False
    with EndBySignal():
        Deleted()
        await_never()
        reached = True
    assert not reached


def test_what_else_python_reports_goes_to_the_hook_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_value))
    with EndBySignal():
        Faulty()
    Faulty()
    assert [str(error) for error in reported] == ["not ours", "not ours"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGALRM])
def test_behind_the_block_signals_do_what_they_did_before(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with EndBySignal():
        assert signal.getsignal(number) != before
    assert signal.getsignal(number) == before


def test_a_signal_that_comes_right_before_the_block_runs_asks_it_to_stop() -> None:
    asked: list[str] = []
    with EndBySignal() as signals:
        Deleted()
        signals.hand_over(lambda: asked.append("stop"))
    assert asked == ["stop"]
