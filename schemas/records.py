"""The two kinds of record on a topic as values: `Change` and `Barrier` (with its mutation and progress).

A record is a barrier exactly when it carries the header `barrier`; its value repeats the epoch. Both
kinds of topic, upstream and output, use these forms; only barriers of an output have progress.
The contract is in docs/contract.md#records-on-the-upstream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

BARRIER_HEADER = "barrier"
"""Header of a barrier record; its value is `curr` in decimal ASCII."""

EPOCH_HEADER = "epoch"
"""Header of a data record whose barriers are in a separate topic: `curr` of the one that closes its interval."""

Row = tuple[Any, ...]
"""Column values in the order of the schema that the row belongs to."""

RecordId = tuple[int, int]
"""Partition and offset of a record of the upstream."""

RECORD_PATTERN = r"[0-9]{1,9}@[0-9]{1,18}"
"""PARTITION@OFFSET, by which errors and options name a record."""
_LOCATION = re.compile(rf"(?:.*-)?({RECORD_PATTERN})")


def record_from_text(text: str) -> RecordId:
    """The record of PARTITION@OFFSET. Raises: ValueError."""
    if re.fullmatch(RECORD_PATTERN, text) is None:
        raise ValueError("no PARTITION@OFFSET")
    partition, _, offset = text.partition("@")
    return int(partition), int(offset)


def record_at(location: str | None) -> str | None:
    """PARTITION@OFFSET of a record's location in an error, as in `orders-2@1047`; None of any other location."""
    found = None if location is None else _LOCATION.fullmatch(location)
    return None if found is None else found[1]


class Op(IntEnum):
    """The operation of a change to a row. The numbers are the Avro enum's indices."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2


_ROWS_OF = {Op.INSERT: (False, True), Op.UPDATE: (True, True), Op.DELETE: (True, False)}
"""The rows that a change has: before and after."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one primary key: INSERT has `after`, DELETE has `before`, UPDATE has both."""

    op: Op
    before: Row | None
    after: Row | None

    @property
    def row(self) -> Row:
        """The row that names the key: `after` if there is one, else `before`. ValueError if neither."""
        row = self.before if self.after is None else self.after
        if row is None:
            raise ValueError("a change without before and after")
        return row

    def is_well_formed(self) -> bool:
        """True if `before` and `after` are present exactly as the op requires."""
        return (self.before is not None, self.after is not None) == _ROWS_OF[self.op]


NO_DATA = -3
"""The op, in a column of ops, of a record that does not concern the table: a heartbeat, a message."""


class BarrierKind(IntEnum):
    """RisingWave's kinds of barrier. The numbers are the Avro enum's indices."""

    INITIAL = 0
    BARRIER = 1
    CHECKPOINT = 2


@dataclass(frozen=True, slots=True)
class Add:
    """Create a job. `job` is its definition as JSON text."""

    job: str


@dataclass(frozen=True, slots=True)
class Drop:
    """End a job: all partitions of its output end with the barrier at which this takes effect."""

    job: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Let a job's progress stand still while live changes and barriers flow. `job` None means every job."""

    job: str | None


@dataclass(frozen=True, slots=True)
class Resume:
    """Undo `Pause`. `job` None means every job."""

    job: str | None


@dataclass(frozen=True, slots=True)
class Throttle:
    """Snapshot rows per second of one job; None = unlimited, 0 = none. Live changes are never limited."""

    job: str
    rate_limit: int | None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the service after the batch that holds this barrier."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Change the number of lanes."""

    lanes: int


@dataclass(frozen=True, slots=True)
class Alter:
    """Change the table; `changes` is JSON as `schemas.kinds.table_changes` writes it."""

    changes: str


@dataclass(frozen=True, slots=True)
class Other:
    """A mutation that this version does not know, by its name; `value` is JSON. It is reported, and changes nothing."""

    name: str
    value: str


Mutation = Add | Drop | Pause | Resume | Throttle | Stop | Lanes | Alter | Other


@dataclass(frozen=True, slots=True)
class VnodeProgress:
    """The progress of a vnode's snapshot read, as published by an output barrier.

    `position` is the JSON array of the primary key's values (see `schemas.position`), or None when no bound
    exists yet or the vnode finished without one. `row_count` counts the snapshot rows read so far, filtered
    ones included.
    """

    vnode: int
    position: str | None
    finished: bool
    row_count: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """Closes the interval (prev, curr]. The same barrier goes to each of `partitions` partitions.

    `full`: its progress lists all parts of its partition, so readers may begin at it. Only barriers of a barrier topic
    are (`schemas.kinds.full_barriers`). So it is with `columns`, which an output has got since its job was made: each
    by its name, with its type and its fill as JSON.
    """

    curr: int
    prev: int
    kind: BarrierKind
    partitions: int
    injected_at_ms: int
    mutation: Mutation | None = None
    progress: tuple[VnodeProgress, ...] = ()
    full: bool = False
    columns: tuple[tuple[str, str], ...] = ()
