"""`backfill completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import sys
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from streaming.cli.shell.scripts import Command, Option, bash, fish, zsh


class Shell(StrEnum):
    """Shells that it is known how to complete in."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_WRITERS = {Shell.BASH: bash, Shell.ZSH: zsh, Shell.FISH: fish}


def command(
    shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", metavar="SHELL")],
) -> None:
    """Print a script that completes commands, options and their values.

    It holds all that there is to complete, so that no Python starts at a press of Tab: print it again after an update.

    bash: backfill completion bash > ~/.local/share/bash-completion/completions/backfill

    zsh: backfill completion zsh > ~/.zfunc/_backfill, with ~/.zfunc in fpath before compinit

    fish: backfill completion fish > ~/.config/fish/completions/backfill.fish
    """
    sys.stdout.write(_WRITERS[shell](described()))


def described() -> list[Command]:
    """Every command with its options, as their help has them."""
    from streaming.cli.app import COMMANDS, load

    return [Command(name, text, *_parts(load(name).params)) for name, text in COMMANDS.items()]


def _parts(params: list[Any]) -> tuple[tuple[Option, ...], tuple[str, ...]]:
    options = tuple(_option(param) for param in params if param.param_type_name == "option")
    values = [_choices(param) for param in params if param.param_type_name == "argument"]
    return options, values[0] if values else ()


def _option(param: Any) -> Option:
    help_text = " ".join((param.help or "").split())
    names = (*param.opts, *param.secondary_opts)
    annotation = param.type_descriptor.annotation
    return Option(
        names, help_text, bool(param.is_flag), _choices(param), Path in (annotation, *get_args(annotation))
    )


def _choices(param: Any) -> tuple[str, ...]:
    annotation = param.type_descriptor.annotation
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return tuple(str(member.value) for member in kind)
    return ()
