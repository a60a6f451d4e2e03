"""Scripts of completion, asked in the shells themselves where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from streaming.cli.app import COMMANDS, main
from streaming.cli.completion import Command, Option, bash, described


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        (tmp_path / shell).write_text(capsys.readouterr().out)
    (tmp_path / "config.yaml").write_text("")
    return tmp_path


def in_bash(scripts: Path, *words: str, shell: str = "bash") -> set[str]:
    """Completions of the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f"source ./{shell}; COMP_WORDS=(backfill {quoted}); COMP_CWORD={len(words)}; _backfill;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], cwd=scripts, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands_options_values_and_files(scripts: Path) -> None:
    assert in_bash(scripts, "") == set(COMMANDS)
    assert in_bash(scripts, "re") == {"rebuild", "reset", "resume"}
    assert in_bash(scripts, "--v") == {"--version"}
    assert in_bash(scripts, "demo", "--") == {"--rows", "--live-seconds", "--from", "--keep", "--help"}
    assert in_bash(scripts, "demo", "--from", "") == {"debezium", "upsert", "change"}
    assert in_bash(scripts, "demo", "--rows", "--") == set()
    assert in_bash(scripts, "run", "conf") == {"config.yaml"}
    assert in_bash(scripts, "list", "-c", "") >= {"config.yaml"}
    assert in_bash(scripts, "completion", "") == {"bash", "zsh", "fish"}
    assert in_bash(scripts, "completion", "-") == {"-h", "--help"}
    assert in_bash(scripts, "nosuch", "") == set()


def test_every_option_of_every_command_is_in_every_script(scripts: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        text = (scripts / shell).read_text()
        for command in described():
            assert command.name in text
            for option in command.options:
                assert all(name.lstrip("-") in text for name in option.names)


def test_a_value_that_is_not_known_completes_to_nothing(tmp_path: Path) -> None:
    made = Command(
        "go", "Go.", (Option(("--to",), "Where to.", is_flag=False), Option(("--fast",), "", is_flag=True))
    )
    (tmp_path / "bash").write_text(bash([made]))
    assert in_bash(tmp_path, "go", "--to", "-") == set()
    assert in_bash(tmp_path, "go", "--fast", "--t") == {"--to"}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(scripts: Path) -> None:
    def asked(line: str) -> set[str]:
        program = f"source ./fish; complete -C '{line}'"
        done = subprocess.run(
            ["fish", "-c", program], cwd=scripts, capture_output=True, text=True, check=True
        )
        return {each.split("\t")[0] for each in done.stdout.splitlines()}

    assert asked("backfill re") >= {"rebuild", "resume"}
    assert asked("backfill demo --from ") == {"debezium", "upsert", "change"}
    assert "--live-seconds" in asked("backfill demo --l")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_the_script(scripts: Path) -> None:
    program = "autoload -U compinit && compinit -u -D; source ./zsh; print -r -- ${_comps[backfill]}"
    done = subprocess.run(
        ["zsh", "-f", "-c", program], cwd=scripts, capture_output=True, text=True, check=True
    )
    assert "_backfill" in done.stdout
