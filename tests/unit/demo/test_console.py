"""The demo's output where it is no terminal: plain lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from streaming.demo import console as module
from streaming.demo.console import StepConsole


def test_without_a_terminal_a_step_is_one_line_when_it_has_ended() -> None:
    output = io.StringIO()
    with StepConsole(Console(file=output), ["one", "two"]) as console:
        console.begin("one", "beginning", total=10)
        console.update("one", "half of it", completed=5, total=10)
        console.end("one", "10 of 10")
    assert output.getvalue() == "one: 10 of 10 (0.0 s)\n"


def test_without_a_terminal_a_long_step_tells_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PLAIN_EVERY_S", 0.0)
    output = io.StringIO()
    with StepConsole(Console(file=output), ["one"]) as console:
        console.begin("one", "")
        console.update("one", "half of it")
    assert output.getvalue() == "  one: half of it\n"


def test_on_a_terminal_every_step_is_there_from_the_start_and_ticked_at_its_end() -> None:
    output = io.StringIO()
    with StepConsole(Console(file=output, force_terminal=True, width=80), ["one", "two"]) as console:
        console.begin("one", "beginning")
        console.end("one", "ready")
    last = output.getvalue().rpartition("one")
    assert "✓" in last[0].splitlines()[-1]
    assert "ready" in last[2]
    assert "two" in last[2]
