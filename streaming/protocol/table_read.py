"""The door to a table that is read from its database beside the batches: what the planner takes of the reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from state.values.chunks import Chunk, Streamed
from state.values.reading import TableRead


@dataclass(frozen=True, slots=True)
class Finished:
    """A chunk that was read. `files` have its rows (`state.initial.chunks.stage`), and are on the disk."""

    chunk: Chunk
    files: tuple[str, ...]


class ReadsTable(Protocol):
    """Reads the table. Called by the thread that runs batches, while its own threads read.

    What was taken and is in no plan of the journal is lost in a crash, and read once more.
    """

    def begin(self) -> TableRead:
        """For a state without a plan: nothing was read. Its first plan holds it, so it is decided only once.

        Raises: BackfillError where the table can't be read.
        """

    def go_on(self, read: TableRead) -> None:
        """Read what is unread of a reading that a plan holds, or that `begin` gave. Called once, before `take`."""

    def take(self) -> Sequence[Finished]:
        """Chunks that were finished since the last call, each once, in the order in which they were finished.

        Raises: what has ended the reading, again at each call.
        """

    def proofs(self) -> Sequence[Streamed]:
        """Proofs of how far the connector has come, the newest ones, and at least those that may still matter."""

    def released(self, read: TableRead) -> None:
        """A batch is done that has released chunks; the reading stands here. Reading is over when it `is_done`."""
