"""How much is read at a time, and where a slice of about that much ends."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.position import Key


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is read: rows, and what they take as Arrow columns."""

    rows: int
    size: int

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.rows + other.rows, self.size + other.size)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.rows - other.rows, self.size - other.size)

    def __floordiv__(self, parts: int) -> Amount:
        return Amount(self.rows // parts, self.size // parts)

    def fits(self, most: Amount) -> bool:
        """Whether it is no more than this, in rows and in size."""
        return self.rows <= most.rows and self.size <= most.size

    @property
    def is_nothing(self) -> bool:
        """Whether not a row fits in it."""
        return self.rows <= 0 or self.size <= 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a slice may end: `upto` None reaches the part's end.

    `rows` and `size` (Arrow bytes) are estimates: log rows may differ, and a file knows the average of its rows only.
    """

    upto: Key | None
    rows: int
    size: int = 0

    @property
    def amount(self) -> Amount:
        """What the slice reads, about."""
        return Amount(self.rows, self.size)
