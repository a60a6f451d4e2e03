"""Pinned versions: the table as of an aligned barrier."""

from __future__ import annotations

from dataclasses import dataclass


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
