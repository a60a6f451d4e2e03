"""A signal ends the block, whatever the interpreter was at when it came."""

from __future__ import annotations

import os
import signal

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
    """While it is deleted the signal comes; what is raised there, Python prints and forgets."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(10))  # the handler runs between two bytecodes


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_python_forgets_is_remembered() -> None:
    asked: list[str] = []
    with EndBySignal() as signals:
        Deleted()
        signals.hand_over(lambda: asked.append("stop"))
    assert asked == ["stop"]
