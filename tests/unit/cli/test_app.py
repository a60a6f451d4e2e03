"""The command line before any command runs, and when one fails."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
import typer

from schemas.errors import Code, InputError
from streaming.cli.app import COMMANDS, FOR_TESTS, main, with_groups
from streaming.cli.configuration import with_option


def test_help_names_every_command_and_imports_no_heavy_library() -> None:
    program = (
        "import sys; from streaming.cli.app import main; status = main(['--help']);"
        "heavy = {'pyspark', 'confluent_kafka', 'deltalake', 'pyarrow', 'numpy'} & set(sys.modules);"
        "sys.exit(f'imports {heavy}' if heavy else status)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS.keys() - FOR_TESTS)


def test_a_mistyped_option_is_one_line_with_a_way_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka", "--prt", "1"]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("USAGE: found no such option: --prt")
    assert complaint.endswith("next: backfill kafka --help\n")
    assert complaint.count("\n") == 1


@pytest.mark.parametrize("seconds", ["0", "nan", "inf", "1e300"])
def test_a_time_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    assert main(["pause", "copy", "--timeout", seconds]) == 2
    assert capsys.readouterr().err.startswith("USAGE: found invalid value for '--timeout'")


def test_a_mistyped_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafak"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_foreseen_error_is_one_line_with_its_status(
    capsys: pytest.CaptureFixture[str], failing: FailWith
) -> None:
    failing(
        InputError(Code.PK_NULL, found="a null", expected="a key", next_step="look there", where="orders-1@7")
    )
    assert main(["kafka"]) == InputError.exit_status
    assert (
        capsys.readouterr().err == "PK_NULL at orders-1@7: found a null; expected a key; next: look there\n"
    )


def test_an_unforeseen_error_keeps_its_trace_in_a_file_and_its_text_off_the_terminal(
    capsys: pytest.CaptureFixture[str], failing: FailWith, tmp_path: Path
) -> None:
    failing(KeyError("somebody's data"))
    assert main(["kafka"]) == 70
    complaint = capsys.readouterr().err
    assert complaint.startswith("INTERNAL: found KeyError;")
    assert "somebody's data" not in complaint
    [log] = (tmp_path / "logs").glob("crash-*.log")
    assert str(log) in complaint
    assert "Traceback" in log.read_text()


class FailWith:
    """Puts a command that fails in the place of `backfill kafka`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, error: Exception) -> None:
        def command() -> None:
            raise error

        module = ModuleType("streaming.cli.local")
        module.kafka = command  # type: ignore[attr-defined]
        self._monkeypatch.setitem(sys.modules, "streaming.cli.local", module)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> FailWith:
    return FailWith(monkeypatch)


@dataclass(frozen=True)
class Pair:
    left: Annotated[int, typer.Option("--left", "-l", min=0, help="Of two.")] = 1
    right: Annotated[str | None, typer.Option(help="Of two.")] = None


def test_a_group_of_options_is_an_option_for_each_of_its_fields() -> None:
    seen = []

    def command(
        name: Annotated[str, typer.Argument(help="First.")],
        *,
        pair: Pair,
        again: Annotated[bool, typer.Option("--again")] = False,
    ) -> None:
        seen.append((name, pair, again))

    single = typer.Typer(add_completion=False)
    single.command()(with_groups(command))
    made = typer.main.get_command(single)
    assert [param.name for param in made.params] == ["name", "left", "right", "again"]
    made(["a", "-l", "3", "--again"], standalone_mode=False)
    made(["b", "--right", "x"], standalone_mode=False)
    assert seen == [("a", Pair(left=3), True), ("b", Pair(right="x"), False)]


def test_an_invalid_record_of_the_upstream_names_the_option_that_leaves_it_out() -> None:
    error = InputError(Code.UNKNOWN_OP, where="my-orders-2@29066", found="9 bytes")
    shown = with_option(error, "my-orders")
    assert shown.next_step == "correct the producer; if the service has left it out: --skip-record 2@29066"
    assert (shown.code, shown.where, shown.found) == (error.code, error.where, error.found)


@pytest.mark.parametrize("where", [None, "big-orders-2@29066", "my-orders", "my-orders-2"])
def test_an_error_at_another_place_stays_as_it_is(where: str | None) -> None:
    error = InputError(Code.UNKNOWN_OP, where=where, found="9 bytes")
    assert with_option(error, "my-orders") is error
