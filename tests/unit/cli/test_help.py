"""Help texts at the width of a common terminal: nothing is cut off, and nothing runs over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streaming.cli.app import COMMANDS, FOR_TESTS, load, main
from streaming.cli.local import failpoints

_WIDTH = 80


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(_WIDTH))


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_help_fits_and_names_every_option_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*([name] if name else []), "--help"]) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if len(line) > _WIDTH] == []
    options = [] if not name else [param for param in load(name).params if param.param_type_name == "option"]
    for option in options:
        for shown in (*option.opts, *option.secondary_opts):
            assert shown in said.replace(",", " ").split()
    assert "…" not in said
    assert "..." not in said.replace("[ARGS]...", "").replace("json, avro ...", "")
    listed = {command for command in COMMANDS if f"\n  {command} " in said}
    assert name or listed == COMMANDS.keys() - FOR_TESTS


def test_the_file_that_a_configuration_is_taken_from_is_in_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In brackets, which a formatter with markup swallowed."""
    assert main(["list", "--help"]) == 0
    assert "[env: BACKFILL_CONFIG; default: config.yaml]" in " ".join(capsys.readouterr().out.split())


def test_tables_fit_too(capsys: pytest.CaptureFixture[str]) -> None:
    failpoints()
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= _WIDTH
    assert "…" not in said


QUIET = {
    "run": "logs, in JSON where asked",
    "rebuild": "likewise",
    "barriers": "likewise",
    "demo": "for people; the parts are commands of their own",
    "inspect": "prints a configuration, whose comments matter",
    "kafka": "prints an address",
    "prepare": "prints nothing but that it is done",
    "completion": "prints a script",
}


def test_every_command_that_prints_prints_json_too() -> None:
    with_json = {name for name in COMMANDS if any("--json" in param.opts for param in load(name).params)}
    assert with_json | set(QUIET) == set(COMMANDS)
    assert not with_json & set(QUIET)


def test_json_of_a_command_is_one_object() -> None:
    command = [sys.executable, "-m", "streaming.cli.app", "failpoints", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert done.stdout.startswith('{"')
    assert done.stdout.count("\n") == 1
