"""How far the records of an upstream have come that may be sent again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from schemas.records import Op

Position = tuple[int, int]
"""Where a change stands in the log of the database that it comes from; see `schemas.records.UpstreamRecord`."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one upstream partition, up to some offset: the highest position of its records.

    `dropped` is the digest of a key: that of the last record, if this is a delete that came again. Its tombstone is
    still to come. `at_top` are digests of the records at the highest position: few, the rows of one page at most.
    """

    position: Position
    dropped: str | None = None
    at_top: frozenset[str] = frozenset()

    def to_list(self) -> list[int | str | None]:
        """As JSON has it."""
        return [*self.position, self.dropped, *sorted(self.at_top)]

    @classmethod
    def from_list(cls, raw: Sequence[Any]) -> Seen:
        """From what `to_list` gave."""
        commit, lsn, dropped, *at_top = raw
        return cls((commit, lsn), dropped, frozenset(at_top))


@dataclass(frozen=True, slots=True)
class LaneSeen:
    """What one lane has seen of a partition: as `Seen`, and the offset of its last record."""

    seen: Seen
    offset: int


def digest(key: bytes, op: Op | None = None) -> str:
    """A digest of an encoded key, or of a key and an op. Plans hold it, and nothing of the key itself."""
    return blake2b(key, digest_size=12, salt=b"" if op is None else op.name.encode()).hexdigest()


def merged(before: Mapping[int, Seen], lanes: Iterable[Mapping[int, LaneSeen]]) -> dict[int, Seen]:
    """`before`, brought forward by what all lanes have seen in a batch."""
    of_partition: dict[int, list[LaneSeen]] = {}
    for lane in lanes:
        for partition, each in lane.items():
            of_partition.setdefault(partition, []).append(each)
    after = dict(before)
    for partition, found in of_partition.items():
        known = [each.seen for each in found] + ([before[partition]] if partition in before else [])
        top = max(each.position for each in known)
        at_top = frozenset[str]().union(*(each.at_top for each in known if each.position == top))
        last = max(found, key=lambda each: each.offset)
        after[partition] = Seen(top, last.seen.dropped, at_top)
    return after
