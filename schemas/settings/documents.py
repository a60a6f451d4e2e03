"""YAML and JSON files of users, read without trust: bounded in size and depth, no objects, and with variables.

`${NAME}` in a value is a variable of the environment, `$$` is `$`. They are replaced in the parsed file, before its
values get their types: in a plain scalar, `${RATE}` may be a number; in quotes it is text, whatever the variable holds;
and no variable can bring keys of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.resolver import VersionedResolver

from schemas.errors import Code, ConfigError

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<open>\{))")
MAX_FILE_BYTES = 1 << 20
_MAX_PROBLEM_CHARS = 200


def read_mapping(path: Path, code: Code, *, expected: str, next_step: str | None = None) -> dict[Any, Any]:
    """The mapping that a file holds, with the values of the variables in it (`fill_in`).

    Raises: ConfigError with this code when it can't be read, is no YAML or JSON, is too large or too deep, holds
    something else, or a variable that is not set. The message names a line where there is one, and quotes no value.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        found = f"a file that can't be read ({type(error).__name__})"
        raise ConfigError(
            code, where=str(path), found=found, expected=expected, next_step=next_step
        ) from None
    return mapping_in(data, code, where=str(path), expected=expected, next_step=next_step)


def mapping_in(
    data: bytes, code: Code, *, where: str, expected: str, next_step: str | None = None
) -> dict[Any, Any]:
    """The mapping in the text of such a file. Raises: as `read_mapping`."""

    def refusal(found: str, line: int | None = None) -> ConfigError:
        place = where if line is None else f"{where}:{line}"
        return ConfigError(code, where=place, found=found, expected=expected, next_step=next_step)

    if len(data) > MAX_FILE_BYTES:
        raise refusal(f"more than {MAX_FILE_BYTES} bytes")
    try:
        # Safe and pure: no tag makes an object, and a key that is there twice is an error. JSON is YAML.
        yaml = YAML(typ="safe", pure=True)
        root = yaml.compose(data.decode("utf-8"))
        if root is not None:
            fill_in(root, yaml.resolver)
        declared = None if root is None else yaml.constructor.construct_document(root)
    except UnicodeDecodeError as error:
        raise refusal(f"a file that can't be read ({type(error).__name__})") from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise refusal(_problem(error), mark.line + 1 if mark else None) from None
    except VariableError as error:
        raise refusal(str(error), error.line + 1) from None
    except RecursionError:
        raise refusal("values nested too deep") from None
    except ValueError:  # a date without a calendar day, a number of thousands of digits
        raise refusal("a date or number that doesn't exist") from None
    if not isinstance(declared, dict):
        raise refusal("no mapping of keys to values")
    return declared


def _problem(error: YAMLError) -> str:
    """The message of YAML, without the values that some of its messages quote."""
    problem = str(getattr(error, "problem", None) or type(error).__name__)
    line = (
        problem.partition(" with value ")[0].splitlines()[0].removeprefix("found ")
    )  # the error says "found" itself
    return line[:_MAX_PROBLEM_CHARS].encode("ascii", "backslashreplace").decode()


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
