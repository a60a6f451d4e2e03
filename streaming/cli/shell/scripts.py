"""Scripts of completion, from commands as values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent

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
