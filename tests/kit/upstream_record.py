"""The content of an upstream's record as Python values, for the tests' slow models."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.codec.logs import LogPosition
from schemas.records import Change


@dataclass(frozen=True, slots=True)
class UpstreamRecord:
    """The content of an upstream's record without its key; `change` is None where it is no data of the table.

    `unchanged` are columns, by index, whose value the record leaves out because it is what it was: None in `change`.
    `position` is where the change stands in the log of the database that it comes from, where that can be compared; of
    a row of a snapshot it has the log alone.
    `transaction` is the one that made it, where the format was asked for it: its number, or the lower 32 bits of that.
    """

    change: Change | None
    unchanged: tuple[int, ...] = ()
    position: LogPosition | None = None
    transaction: int | None = None
