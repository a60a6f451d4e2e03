"""YAML and JSON files of users, read without trust: bounded in size and depth, no objects, variables as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from schemas.errors import Code, ConfigError
from schemas.settings.variables import VariableError, fill_in

MAX_FILE_BYTES = 1 << 20
_MAX_PROBLEM_CHARS = 200


def read_mapping(path: Path, code: Code, *, expected: str, next_step: str | None = None) -> dict[Any, Any]:
    """The mapping that a file holds, with the values of the variables in it (`schemas.settings.variables`).

    Raises: ConfigError with this code when it can't be read, is no YAML or JSON, is too large or too deep, holds
    something else, or a variable that is not set. The message names a line where there is one, and quotes no value.
    """

    def refusal(found: str, line: int | None = None) -> ConfigError:
        where = str(path) if line is None else f"{path}:{line}"
        return ConfigError(code, where=where, found=found, expected=expected, next_step=next_step)

    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise refusal(f"more than {MAX_FILE_BYTES} bytes")
        # Safe and pure: no tag makes an object, and a key that is there twice is an error. JSON is YAML.
        yaml = YAML(typ="safe", pure=True)
        root = yaml.compose(data.decode("utf-8"))
        if root is not None:
            fill_in(root, yaml.resolver)
        declared = None if root is None else yaml.constructor.construct_document(root)
    except (OSError, UnicodeDecodeError) as error:
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
