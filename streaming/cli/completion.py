"""`backfill completion`: a script by which a shell completes commands, options and their values.

It holds all that there is to complete: an answer of typer's own takes a start of Python at each press of Tab, 0.3 s and
for a command's options as long as its imports take.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, get_args

import typer

_GLOBAL = ("--help", "--version")
_HELP = ("-h", "--help")


@dataclass(frozen=True, slots=True)
class Option:
    """All its names; `choices` are its values where there are few of them, and `is_file` where they are files."""

    names: tuple[str, ...]
    help: str
    is_flag: bool
    choices: tuple[str, ...] = ()
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """`choices` are the values of its words; without them a word may be a file."""

    name: str
    help: str
    options: tuple[Option, ...]
    choices: tuple[str, ...] = ()


def bash(commands: Sequence[Command]) -> str:
    """For bash 4 and newer."""
    cases = "\n".join(indent(_case(command), "        ") for command in commands)
    return f"""# Completion of `backfill` for bash; made by `backfill completion bash`.
_backfill() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command= words= values= files=1
    if (( COMP_CWORD > 1 )); then command=${{COMP_WORDS[1]}}; fi
    case $command in
        "") words="{" ".join([each.name for each in commands])}"; files=
            [[ $cur == -* ]] && words="{" ".join(_GLOBAL)}" ;;
{cases}
        *) return ;;
    esac
    if [[ -n $values ]]; then words=$values; files=
    elif [[ $cur == -* ]]; then files=; fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    if [[ -n $files ]]; then COMPREPLY+=($(compgen -f -- "$cur")); fi
}}
complete -o filenames -F _backfill backfill
"""


def _case(command: Command) -> str:
    names = [name for option in command.options for name in option.names]
    lines = [f'{command.name}) words="{" ".join([*names, *_HELP])}"']
    if command.choices:
        lines.append(f'    [[ $cur == -* ]] || words="{" ".join(command.choices)}"; files=')
    asked = [option for option in command.options if not option.is_flag]
    if asked:
        lines.append('    case "$prev" in')
        for option in asked:
            # A value that can't be known completes to nothing rather than to an option.
            what = "words=" if option.is_file else f'values="{" ".join(option.choices) or " "}"'
            lines.append(f"        {'|'.join(option.names)}) {what} ;;")
        lines.append("    esac")
    return "\n".join([*lines, "    ;;"])


def zsh(commands: Sequence[Command]) -> str:
    """For zsh, which can run what was written for bash."""
    return f"#compdef backfill\nautoload -U +X bashcompinit && bashcompinit\n{bash(commands)}"


def fish(commands: Sequence[Command]) -> str:
    """For fish 3 and newer."""
    lines = ["# Completion of `backfill` for fish; made by `backfill completion fish`."]
    lines += [
        f"complete -c backfill -n __fish_use_subcommand -f -a {each.name} -d {_quoted(each.help)}"
        for each in commands
    ]
    for command in commands:
        here = f"complete -c backfill -n '__fish_seen_subcommand_from {command.name}'"
        if command.choices:
            lines.append(f"{here} -f -a {_quoted(' '.join(command.choices))}")
        for option in command.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
            )
            lines.append(f"{here} {names} -d {_quoted(option.help)}{_value(option)}")
    return "\n".join(lines) + "\n"


def _value(option: Option) -> str:
    if option.is_flag:
        return ""
    if option.is_file:
        return " -r"
    return f" -x -a {_quoted(' '.join(option.choices))}" if option.choices else " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


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
    from streaming.cli.app import COMMANDS, load  # which loads this module

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
