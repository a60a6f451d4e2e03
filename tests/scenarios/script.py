"""A scenario file as commands and expected output, and back.

Blocks are separated by empty lines. A block holds comments (`#`) and commands; after `----` comes, up to the next empty
line, what its commands print.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import unified_diff

SEPARATOR = "----"


class ScriptError(Exception):
    """A line that is no command, or one that can't be carried out where it is."""

    def __init__(self, line: int, found: str) -> None:
        super().__init__(f"line {line}: {found}")


@dataclass(frozen=True)
class Command:
    """`words` are those without `=`; `options` the others, by name. `line` counts from 1."""

    line: int
    words: tuple[str, ...]
    options: dict[str, str]

    @classmethod
    def parse(cls, line: int, text: str) -> Command:
        """Read a line. Raises: ScriptError."""
        try:
            parts = shlex.split(text)
        except ValueError as error:
            raise ScriptError(line, str(error)) from error
        words = tuple(part for part in parts if "=" not in part)
        if not words:
            raise ScriptError(line, "a command starts with its name")
        return cls(line, words, dict(part.split("=", 1) for part in parts if "=" in part))

    @property
    def name(self) -> str:
        """The first word."""
        return self.words[0]

    def number(self, option: str, default: int) -> int:
        """An option that is a whole number. Raises: ScriptError."""
        given = self.options.get(option, str(default))
        if not given.isdecimal():
            raise ScriptError(self.line, f"{option}={given} is no number")
        return int(given)

    def expect(self, words: int, *options: str) -> None:
        """Check how many words there are, the name included, and which options. Raises: ScriptError."""
        unknown = self.options.keys() - set(options)
        if len(self.words) != words or unknown:
            found = ", ".join(sorted(unknown)) or f"{len(self.words) - 1} words"
            raise ScriptError(self.line, f"{self.name} does not take {found}")


@dataclass(frozen=True)
class Block:
    """`text` is the input as it was written, comments included; `line` its first line."""

    line: int
    text: tuple[str, ...]
    commands: tuple[Command, ...]


def parse(text: str) -> list[Block]:
    """The blocks of a file. Raises: ScriptError."""
    blocks: list[Block] = []
    lines: list[tuple[int, str]] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            lines.append((number, line.rstrip()))
        elif lines:
            blocks.append(_block(lines))
            lines = []
    return blocks


def _block(lines: Sequence[tuple[int, str]]) -> Block:
    end = next((index for index, (_, line) in enumerate(lines) if line == SEPARATOR), len(lines))
    commands = [Command.parse(*line) for line in lines[:end] if not line[1].startswith("#")]
    return Block(lines[0][0], tuple(line for _, line in lines[:end]), tuple(commands))


def render(blocks: Iterable[Block], outputs: Iterable[Sequence[str]]) -> str:
    """The file with what its blocks have printed."""
    texts = [
        "\n".join([*block.text, *([SEPARATOR, *output] if output else [])])
        for block, output in zip(blocks, outputs, strict=True)
    ]
    return "\n\n".join(texts) + "\n"


def differences(path: str, expected: str, found: str) -> str:
    """For a person: the first line that differs, and all that do; empty if none does."""
    old, new = expected.splitlines(), found.splitlines()
    if old == new:
        return ""
    pairs = zip([*old, ""], [*new, ""], strict=False)
    line = next((number for number, (one, other) in enumerate(pairs, 1) if one != other), len(old))
    diff = unified_diff(old, new, f"{path} (expected)", f"{path} (found)", lineterm="")
    return "\n".join([f"{path}:{line}: the output differs (--update writes what was found)", *diff])
