"""Limits of what the service takes and handles at a time; sizes and durations as a configuration writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from schemas.faults import brief
from schemas.types import MAX_VALUE_BYTES

HEADROOM_BYTES = 16 * 1024
"""Bytes that a record in its batch has beyond key and value: frames, and the headers of a dead letter."""
KAFKA_MESSAGE_BYTES = 1_048_588
"""`max.message.bytes` of a topic where neither the topic nor its broker sets it."""
_SIZE = re.compile(r"([1-9][0-9]{0,11})([kmg]?)")
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30}
_DURATION = re.compile(r"([0-9]{1,12})(ms|s|m|h)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one service.

    `record_bytes`: key and value of an upstream record, at most (RECORD_TOO_LARGE). What its outputs need follows from
    their forms (`schemas.formats.outputs.lengths`).
    `short_records`: upstream records of a batch up to which lanes read the topic themselves, instead of a query of
    Spark, whose fixed cost is that of some thousand records.
    `interval_records` and `lane_bytes`: upstream records between two barriers, and decoded changes of them in one lane,
    from which on an interval is handled in parts; a lane needs about five times the memory of what it holds.
    `part_records`: changes of such a part. `rate_limit`: snapshot rows per second of all jobs together, None for any
    number. `long_transaction_ms`: how long a lane's transaction may take then; the broker's own limit
    (`transaction.max.timeout.ms`, 15 minutes by default) must allow it.
    """

    record_bytes: int = 1_000_000
    short_records: int = 2_000
    interval_records: int = 1_000_000
    lane_bytes: int = 64 << 20
    part_records: int = 100_000
    long_transaction_ms: int = 900_000
    rate_limit: int | None = None

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


def parse_duration(text: object) -> int:
    """Milliseconds of `200ms`, `1s`, `2m`, `1h`. ValueError for anything else, a bare number above all."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{brief(text)} is not a whole number with a unit: ms, s, m or h, as in 200ms")
    return int(match[1]) * _UNIT_MS[match[2]]


def duration_text(ms: int) -> str:
    """The shortest text that `parse_duration` reads back."""
    unit = next(unit for unit in ("h", "m", "s", "ms") if ms % _UNIT_MS[unit] == 0)
    return f"{ms // _UNIT_MS[unit]}{unit}"


def duration_within(least_ms: int, most_ms: int) -> BeforeValidator:
    """The validator of a duration from a text to milliseconds, within bounds."""

    def checked_ms(declared: object) -> int:
        duration_ms = parse_duration(declared)
        if not least_ms <= duration_ms <= most_ms:
            bounds = f"{duration_text(least_ms)}..{duration_text(most_ms)}"
            raise ValueError(f"{brief(declared)} is not in {bounds}")
        return duration_ms

    return BeforeValidator(checked_ms)


_Bytes = Annotated[int, BeforeValidator(size_bytes)]


def written(default: object, **settings: Any) -> Any:
    """The field of a key; `default` is as a configuration writes it."""
    return Field(default, validate_default=True, **settings)


class LimitsConfig(BaseModel):
    """The section `limits`, see `Limits`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    record_bytes: _Bytes = Field(
        Limits().record_bytes,
        ge=Limits().record_bytes,
        le=MAX_VALUE_BYTES,
        description="Key and value of an upstream record, up to `64m`; "
        "[outputs are made to take](outputs.md#long-records) what their form makes of it.",
    )
    short_records: int = Field(
        Limits().short_records,
        ge=0,
        le=100_000,
        description="Upstream records of a batch up to which lanes read and decode them themselves, in place of a "
        "query of Spark, whose fixed cost is that of some thousand records. `0`: Spark reads all of them.",
    )
    interval_records: int = Field(
        Limits().interval_records,
        ge=1,
        le=1 << 40,
        description="Upstream records between two barriers from which on they are handled in parts: sorted by Spark, "
        "on disk if need be, or (with no job open) remembered part by part.",
    )
    lane_bytes: _Bytes = Field(
        Limits().lane_bytes,
        ge=1 << 20,
        le=1 << 30,
        description="Decoded changes of an interval that one lane holds at most, and needs five times as much memory "
        "for; more of them go in parts.",
    )
    long_transaction_ms: Annotated[int, duration_within(60_000, 86_400_000)] = written(
        duration_text(Limits().long_transaction_ms),
        alias="long_transaction",
        description="How long the transaction of an interval in parts may take, `1m` to `24h`; what the broker's "
        "`transaction.max.timeout.ms` does not allow is taken for `1m`.",
    )
    rate_limit: int | None = Field(
        None,
        ge=1,
        description="Snapshot rows per second of all jobs together, shared evenly; each has its own `rate_limit` "
        "besides.",
    )

    @property
    def limits(self) -> Limits:
        """The limits of the service."""
        return Limits(**self.model_dump())
