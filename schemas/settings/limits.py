"""What the service takes at most, and what it handles at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.faults import brief

HEADROOM_BYTES = 16 * 1024
"""Bytes that a record in its batch has beyond key and value: frames, and the headers of a dead letter."""
KAFKA_MESSAGE_BYTES = 1_048_588
"""`max.message.bytes` of a topic where neither the topic nor its broker sets it."""
_SIZE = re.compile(r"([1-9][0-9]{0,11})([kmg]?)")
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30}


@dataclass(frozen=True, slots=True)
class Limits:
    """What is taken, and held.

    `record_bytes`: key and value of an upstream record, at most (RECORD_TOO_LARGE). What its outputs need follows from
    their forms (`schemas.formats.outputs.lengths`).
    `short_records`: upstream records of a batch up to which lanes read the topic themselves, in place of a query of
    Spark, whose fixed cost is that of some thousand records.
    `interval_records` and `lane_bytes`: upstream records between two barriers, and decoded changes of them in one lane,
    from which on an interval is handled in parts; a lane needs about five times the memory of what it holds.
    `part_records`: changes of such a part. `long_transaction_ms`: how long a lane's transaction may take then; the
    broker's own limit (`transaction.max.timeout.ms`, 15 minutes by default) must allow it.
    """

    record_bytes: int = 1_000_000
    short_records: int = 2_000
    interval_records: int = 1_000_000
    lane_bytes: int = 64 << 20
    part_records: int = 100_000
    long_transaction_ms: int = 900_000

    @property
    def message_bytes(self) -> int:
        """`max.message.bytes` that a topic needs to take every record of ours."""
        return self.record_bytes + HEADROOM_BYTES


def size_bytes(declared: object) -> int:
    """Bytes, of a number of them or of a text as in 512m. Raises: ValueError."""
    match = _SIZE.fullmatch(str(declared)) if type(declared) in (int, str) else None
    if match is None:
        raise ValueError(f"{brief(declared)} is no size: bytes, or a number with k, m or g, as in 512m")
    return int(match[1]) << _SHIFT[match[2]]


def size_text(size: int) -> str:
    """Bytes as a configuration writes them, in the largest unit that divides them."""
    unit = next((unit for unit in "gmk" if size % (1 << _SHIFT[unit]) == 0), "")
    return f"{size >> _SHIFT[unit]}{unit}"
