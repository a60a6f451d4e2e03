"""Changes of a key that come from several partitions, as where a topic has gained some: their order in an interval.

The rule is that of docs/contract.md#partitions-that-are-added, written a second time (`streaming.lane.changes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from streaming.reading.entries import TopicEntry


class _InTopic(Protocol):
    partition: int


Of = TypeVar("Of", bound=_InTopic)


def moved_in_order(held: Sequence[tuple[Of, TopicEntry]]) -> list[tuple[Of, TopicEntry]]:
    """The changes of an interval, each with its partition, given partition by partition.

    Changes of such a key take the places of all of them, in their order; all others stay where they are.
    """
    places: dict[bytes | None, list[int]] = {}
    for place, (_, entry) in enumerate(held):
        places.setdefault(entry.key, []).append(place)
    found = list(held)
    for key, own in places.items():
        queues: dict[int, list[tuple[Of, TopicEntry]]] = {}
        for place in own:
            queues.setdefault(held[place][0].partition, []).append(held[place])
        if key is None or len(queues) == 1:
            continue
        for place in own:
            waiting = [queue for queue in queues.values() if queue]
            first = waiting[0]
            for other in waiting[1:]:
                if _is_before(other[0][1], first[0][1]):
                    first = other
            found[place] = first.pop(0)
    return found


def _is_before(one: TopicEntry, other: TopicEntry) -> bool:
    """True if a record of a higher partition comes first."""
    here, there = one.place, other.place
    if here and there and here.log == there.log and here.position and there.position:
        if here.log.is_lower(here.position, there.position):
            return True
        if here.log.is_lower(there.position, here.position):
            return False
    return one.time_ms < other.time_ms
