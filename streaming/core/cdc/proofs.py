"""Proofs of how far the connector has come, without those that no chunk can need any more."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from state.values.chunks import Chunk, Streamed


class Proofs:
    """Of one slot. They come in the order in which they were got, and their LSNs and ends rise.

    For a chunk the first proof that reaches it is the best one: its ends are the lowest, and so it is due first. What
    is kept is that one of each chunk that waits, and the newest.
    """

    def __init__(self) -> None:
        self._kept: list[Streamed] = []

    @property
    def kept(self) -> tuple[Streamed, ...]:
        """Those that may still matter, oldest first."""
        return tuple(self._kept)

    @property
    def lsn(self) -> int:
        """Up to where the newest one reaches; -1 before the first."""
        return self._kept[-1].lsn if self._kept else -1

    def add(self, proof: Streamed) -> None:
        """Another one. One that reaches no farther than the newest says nothing new: its ends are higher."""
        if proof.lsn > self.lsn:
            self._kept.append(proof)

    def keep_for(self, waiting: Iterable[Chunk]) -> None:
        """Forget those that none of these chunks, and none to come, needs."""
        lsns = [proof.lsn for proof in self._kept]
        needed = {bisect_left(lsns, chunk.written_lsn) for chunk in waiting} | {len(lsns) - 1}
        self._kept = [proof for place, proof in enumerate(self._kept) if place in needed]
