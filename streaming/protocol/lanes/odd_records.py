"""How long records are not read by whole columns, once some of a batch were too odd for it.

It depends on who writes them. One that is odd now and then, as a message between the changes of a table, costs a batch
or two; where all are odd, reading by columns is seldom tried again.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_BATCHES = 128


@dataclass
class OddRecords:
    """Call `tried` for each batch that was read by whole columns, `passed` for each that was not."""

    _pause: int = 0
    _next_pause: int = 1

    @property
    def are_likely(self) -> bool:
        """Whether the next batch should not try."""
        return self._pause > 0

    def passed(self) -> None:
        """A batch went another way."""
        self._pause = max(0, self._pause - 1)

    def tried(self, *, were_odd: bool) -> None:
        """Each failure on top of another doubles the pause; one success forgets them all."""
        self._pause = self._next_pause if were_odd else 0
        self._next_pause = min(2 * self._next_pause, MOST_BATCHES) if were_odd else 1
