"""Everything that is wrong with a declaration, collected, so that one round of corrections is enough.

The error that comes of it has the faults' own code when they share one, and the declaration's general code
when they don't: a job with a forbidden filter alone is EXPRESSION_NOT_ALLOWED.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Callable, Sequence
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from schemas.errors import BackfillError, Code, ConfigError

_NOTED = "noted"
_LONGEST_WORD = 300
_BOUNDED = reprlib.Repr()
_BOUNDED.maxstring = _BOUNDED.maxother = _BOUNDED.maxlong = 60
_BOUNDED.maxlevel = 2


def brief(value: object) -> str:
    """A value that a user wrote, fit for one line of a message: short, ASCII, escaped."""
    try:
        return _BOUNDED.repr(value).encode("ascii", "backslashreplace").decode()
    except ValueError:  # Python spells out no integer of more than 4300 digits
        return "a number beyond all bounds"


def nearest(word: str, known: Sequence[str]) -> str:
    """` (did you mean ...?)` for a likely typing slip, else an empty text."""
    if len(word) > _LONGEST_WORD:  # comparing takes time with the square of the length
        return ""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


class Faults:
    """Collects faults; `general` is the code of faults that don't have one of their own."""

    def __init__(self, general: Code) -> None:
        self._general = general
        self._found: list[tuple[Code, str]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, text: str, code: Code | None = None) -> None:
        """Add a fault; `text` has what was found and, where that is not plain, what would be valid."""
        self._found.append((code or self._general, text))

    def merge(self, part: str, error: BackfillError) -> None:
        """Add what the check of a part found; `part` is its key in the whole."""
        self.add(f"{part}: {error.found}", error.code)

    def add_invalid(self, error: ValidationError, model: type[BaseModel], prefix: str = "") -> None:
        """Add all that pydantic found in the keys of a model; `prefix` goes in front of each key."""
        for item in error.errors(include_url=False):
            if item["type"] != _NOTED:
                self.add(_text(item, model, prefix))

    def find_by(self, attempt: Callable[[], object]) -> bool:
        """Attempt what may raise BackfillError, which is added under its `where`; False if it did."""
        try:
            attempt()
        except BackfillError as error:
            self.merge(str(error.where), error)
            return False
        return True

    def error(self, *, where: str, next_step: str | None = None) -> ConfigError:
        """One error that names every fault, in the order in which they were added."""
        codes = {code for code, _ in self._found}
        return ConfigError(
            codes.pop() if len(codes) == 1 else self._general,
            where=where,
            found="; ".join(text for _, text in self._found),
            next_step=next_step,
        )


def noted() -> PydanticCustomError:
    """The error that a validator raises for a value whose faults it has added already."""
    return PydanticCustomError(_NOTED, "noted")


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the keys that a declaration has for them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def section_in(model: type[BaseModel], keys: Sequence[str | int]) -> type[BaseModel]:
    """The model of the section below these keys; of the last one on the way that is a section."""
    for key in keys:
        field = fields_by_key(model).get(str(key))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        model = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), model
        )
    return model


def _text(item: ErrorDetails, model: type[BaseModel], prefix: str) -> str:
    *parents, last = item["loc"] or ("",)
    key = (prefix + ".".join(map(str, item["loc"]))).removesuffix(".")
    fields = fields_by_key(section_in(model, parents))
    message = (item["msg"][0].lower() + item["msg"][1:]).replace("valid tuple", "valid list")
    match item["type"]:
        case "extra_forbidden":
            return f"unknown key {brief(key)}{nearest(str(last), list(fields))}"
        case "missing":
            return f"no {key!r}"
        case "invalid_key":
            return f"key {brief(last)} is no text"
        case "value_error":
            return f"{key}: {item['msg'].removeprefix('Value error, ')}"
        case _ if last in fields and not fields[str(last)].repr:
            # A user may have written a secret where the name of its file belongs: it is not quoted.
            return f"{key}: {message}"
        case _:
            return f"{key} is {brief(item['input'])}: {message}"
