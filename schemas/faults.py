"""Collects all that is wrong with a declaration, so that one round of corrections is enough.

The error that comes of it has the faults' own code when they share one, and the declaration's general code
when they don't: a job with nothing but a forbidden filter is EXPRESSION_NOT_ALLOWED.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable

from schemas.errors import BackfillError, Code, ConfigError

_BOUNDED = reprlib.Repr()
_BOUNDED.maxstring = _BOUNDED.maxother = _BOUNDED.maxlong = 60
_BOUNDED.maxlevel = 2


def brief(value: object) -> str:
    """A value that a user wrote, fit for one line of a message: short, ASCII, escaped."""
    try:
        return _BOUNDED.repr(value).encode("ascii", "backslashreplace").decode()
    except ValueError:  # Python spells out no integer of more than 4300 digits
        return "a number beyond all bounds"


class Faults:
    """Collects faults; `general` is the code of faults that don't have one of their own."""

    def __init__(self, general: Code) -> None:
        self._general = general
        self._found: list[tuple[Code, str]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, text: str, code: Code | None = None) -> None:
        """Note a fault; `text` says what was found and, where that is not plain, what would do."""
        self._found.append((code or self._general, text))

    def merge(self, place: str, error: BackfillError) -> None:
        """Take over what the check of a part found; `place` is where the part stands in the whole."""
        self.add(f"{place}: {error.found}", error.code)

    def find_by(self, attempt: Callable[[], object]) -> bool:
        """Attempt what raises BackfillError, with its place, where something is wrong; whether nothing was."""
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
