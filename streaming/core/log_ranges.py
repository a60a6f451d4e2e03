"""Ranges of positions in one log: two databases that write under one name alternate between two of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from schemas.codec.logs import LogId, Position, position_text

LEAST_RETURNS: Final = 2
"""A single return may be a server that was moved and moved back."""


@dataclass
class LogRanges:
    """The ranges of positions of one log in one partition, and how often its changes return to a range that was left.

    A range ends where a position falls to a new one. Redelivered records have positions that were there before; a
    restored server goes on in the lower range, and never in the higher one and then in the lower one again. Times are
    useless here: the database whose clock is behind may be the one in the lower range.
    """

    log: LogId
    returns: int = 0
    _known: set[Position] = field(default_factory=set)
    _lasts: list[Position] = field(default_factory=list)
    """The last position of each range, in their order."""
    _last: Position | None = None

    @property
    def is_shared(self) -> bool:
        """True if two databases seem to write."""
        return self.returns >= LEAST_RETURNS

    def add(self, position: Position) -> None:
        """Add the next change."""
        if position in self._known:
            return
        self._known.add(position)
        own = [number for number, last in enumerate(self._lasts) if not self.log.is_lower(position, last)]
        if own:
            self.returns += self._last is not None and self.log.is_lower(position, self._last)
            self._lasts[own[-1]] = position
        else:
            self._lasts.insert(0, position)
        self._last = position

    def __str__(self) -> str:
        lasts = " and ".join(map(position_text, self._lasts))
        return f"{self.log} goes back and forth {self.returns:,} times between positions such as {lasts}"
