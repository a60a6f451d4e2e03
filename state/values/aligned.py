"""Aligned barriers, the table as of one, and offsets by partition of an upstream that may gain partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.avro.codec import barrier_header, decode_barrier, encode_barrier
from schemas.records import Barrier


def padded(offsets: Sequence[int], first: Sequence[int]) -> tuple[int, ...]:
    """Offsets by partition, with the first ones of partitions that were added behind them."""
    return (*offsets, *first[len(offsets) :])


@dataclass(frozen=True, slots=True)
class AlignedBarrier:
    """A barrier that every partition has delivered, of those that were there when it was written.

    `ends[p]` is the exclusive end of what it closes in partition p: the first offset that belongs to a later interval.
    Two barriers may have the same ends. `in_data`: the record before each end is the barrier's own marker; otherwise
    barriers are in a separate topic, and every record of the upstream is data.
    """

    barrier: Barrier
    ends: tuple[int, ...]
    in_data: bool = True

    @property
    def epoch(self) -> int:
        return self.barrier.curr


def aligned_to_dict(aligned: AlignedBarrier) -> dict[str, Any]:
    """JSON values, which `aligned_from_dict` reads back."""
    # The wire form, so that mutation and progress are encoded by the codec alone.
    header, value = barrier_header(aligned.barrier), encode_barrier(aligned.barrier)
    return {"curr": header.decode(), "avro": value.hex(), "ends": aligned.ends, "in_data": aligned.in_data}


def aligned_from_dict(raw: Mapping[str, Any]) -> AlignedBarrier:
    """Read what `aligned_to_dict` gave."""
    barrier = decode_barrier(raw["curr"].encode(), bytes.fromhex(raw["avro"]), where="journal")
    return AlignedBarrier(barrier, tuple(raw["ends"]), raw["in_data"])


@dataclass(frozen=True, slots=True)
class ReplicaVersion:
    """The pinned replica at an aligned barrier: immutable files, so a reader needs no table.

    `base` and `log` are versions of the Delta tables. The base holds the changes of all epochs up to
    `compacted_epoch`; the log's files hold at least everything after it.
    """

    base: int
    log: int
    compacted_epoch: int


@dataclass(frozen=True, slots=True)
class Pin:
    """The table as of an aligned barrier, in each of the ways in which a scan can find it again.

    `replica` are the versions that hold it, `offsets` the exclusive ends of the upstream's records in it. All jobs of a
    batch read at one pin: rows are as of the barrier behind which the changes of the batch begin.
    """

    replica: ReplicaVersion
    offsets: tuple[int, ...]
