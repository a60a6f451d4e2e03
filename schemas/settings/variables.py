"""Variables of the environment in the values of a YAML or JSON file: `${NAME}` is its value, `$$` is `$`.

They are replaced in the parsed file, before its values get their types: in a plain scalar, `${RATE}` may be a number;
in quotes it is text, whatever the variable holds; and no variable can bring keys of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.resolver import VersionedResolver

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<open>\{))")


class VariableError(ValueError):
    """A reference to no variable, or to one that is not set, at a line that counts from 0."""

    def __init__(self, found: str, line: int) -> None:
        super().__init__(found)
        self.line = line


def fill_in(root: Node, resolver: VersionedResolver, environment: Mapping[str, str] = os.environ) -> None:
    """Replace the variables in all values below a node. Keys stay as they are. Raises: VariableError."""
    for scalar in _values(root, set()):
        if "$" in scalar.value:
            scalar.value = _filled(scalar, environment)
            if scalar.style is None:  # plain: it may be a number now, or null
                scalar.tag = resolver.resolve(ScalarNode, scalar.value, (True, False))


def _values(node: Node, seen: set[int]) -> Iterator[ScalarNode]:
    """The scalars below a node, but for keys; each once, also where an anchor names it again."""
    if id(node) in seen:
        return
    seen.add(id(node))
    match node:
        case ScalarNode():
            yield node
        case SequenceNode():
            for item in node.value:
                yield from _values(item, seen)
        case MappingNode():
            for _, value in node.value:
                yield from _values(value, seen)


def _filled(scalar: ScalarNode, environment: Mapping[str, str]) -> str:
    line = scalar.start_mark.line

    def text(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        name = match["name"]
        if name is None:
            raise VariableError("'${' without a variable's name and '}'; '$$' is a '$'", line)
        if name not in environment:
            raise VariableError(f"the variable {name}, which is not set", line)
        return environment[name]

    return _REFERENCE.sub(text, scalar.value)
