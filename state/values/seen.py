"""How far the records of an upstream have come that may be sent again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

Position = tuple[int, int]
"""Where a change stands in the log of the database that it comes from; see `schemas.records.UpstreamRecord`."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one upstream partition, up to some offset: the highest position of its records.

    `dropped` is the digest of a key: that of the last record, if this is a delete that came again. Its tombstone is
    still to come.
    """

    position: Position
    dropped: str | None = None


@dataclass(frozen=True, slots=True)
class LaneSeen:
    """What one lane has seen of a partition: as `Seen`, and the offset of its last record."""

    seen: Seen
    offset: int


def digest(key: bytes) -> str:
    """Of an encoded key. Plans hold it, and nothing of the key."""
    return blake2b(key, digest_size=12).hexdigest()


def merged(before: Mapping[int, Seen], lanes: Iterable[Mapping[int, LaneSeen]]) -> dict[int, Seen]:
    """What all lanes together have seen behind what was seen before."""
    of_partition: dict[int, list[LaneSeen]] = {}
    for lane in lanes:
        for partition, each in lane.items():
            of_partition.setdefault(partition, []).append(each)
    after = dict(before)
    for partition, found in of_partition.items():
        positions = [each.seen.position for each in found]
        if partition in before:
            positions.append(before[partition].position)
        last = max(found, key=lambda each: each.offset)
        after[partition] = Seen(max(positions), last.seen.dropped)
    return after
