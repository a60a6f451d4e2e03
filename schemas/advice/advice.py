"""What a line of the table of errors has beside its code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """The two texts of a line that do not depend on what was found."""

    expected: str
    next_step: str
