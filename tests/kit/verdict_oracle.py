"""`streaming.core.chunk_events` one event at a time, place by place."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from schemas.position import Key
from state.values.chunks import Chunk, KeyRange, TransactionSnapshot
from state.values.reading import TableRead
from streaming.core.chunk_events import NO_TRANSACTION, Verdict


class Place(NamedTuple):
    """Keys of one kind; `chunk` None: they are unread."""

    keys: KeyRange
    snapshot: TransactionSnapshot
    chunk: Chunk | None
    verdict: Verdict
    """Of an event that the snapshot does not see."""


Sees = Callable[[Place, int], bool]
Holds = Callable[[KeyRange, Key], bool]


def sees(place: Place, transaction: int) -> bool:
    return transaction == NO_TRANSACTION or place.snapshot.sees(transaction)


def slow_verdict(
    read: TableRead, due: int, key: Key, transaction: int, sees: Sees = sees, holds: Holds = KeyRange.holds
) -> Verdict:
    """Of one event. Canaries replace what a snapshot sees, or which keys a range has."""
    if read.released is not None and holds(read.released, key):
        return Verdict.APPLIES
    places = [
        Place(chunk.keys, chunk.snapshot, chunk, Verdict.FOLDS if number < due else Verdict.WAITS)
        for number, chunk in enumerate(read.chunks)
    ]
    places += [Place(rest.keys, rest.since, None, Verdict.WAITS) for rest in read.unread]
    [place] = [place for place in places if holds(place.keys, key)]
    return Verdict.HELD if sees(place, transaction) else place.verdict
