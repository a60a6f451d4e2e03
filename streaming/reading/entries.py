"""Records as they lie in the partitions of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from schemas.errors import Code, InputError
from schemas.records import Barrier, Op
from streaming.reading.records.logs import PlaceInLog


@dataclass(frozen=True, slots=True)
class Place:
    """A record on a topic; without an offset, the partition as a whole."""

    topic: str
    partition: int
    offset: int | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}" + ("" if self.offset is None else f"@{self.offset}")


class RecordFault(NamedTuple):
    """The reason why a record is invalid: an InputError as a value, without its place."""

    code: Code
    found: str
    expected: str
    next_step: str

    @classmethod
    def of(cls, error: InputError) -> Self:
        """The reason that an error gives."""
        return cls(error.code, error.found, error.expected, error.next_step)


class RowChange(NamedTuple):
    """The change that a record says, in canonical form (`streaming.verify.records.canonical`), compared as a whole.

    `key` is the record's key, as it came where rows have no identity; `before` and `after` are rows.
    """

    key: bytes | None
    before: bytes | None
    after: bytes | None

    @property
    def op(self) -> Op:
        """The op that the rows imply."""
        return Op.INSERT if self.before is None else Op.DELETE if self.after is None else Op.UPDATE


class TopicEntry(NamedTuple):
    """One record. `barrier` is the value of that header, None for a change; `epoch` is the header of that name.

    `change` is what it says, where it was read and is valid; `fault` is why it is invalid, where that is known.
    `closes` is the barrier that it is, where it comes from a topic of barriers, or was joined with others: `joined`, if
    it closes the intervals of barriers that were deleted as well, and lists what is known of all parts. `time_ms` is
    the record's timestamp, `place` where its change stands in a database's log, if that is known; `width` is that of
    `ReadRecord`. `has_other_key`: the row of its change, where it has the key's columns, is one of another key.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    barrier: bytes | None = None
    change: RowChange | None = None
    epoch: bytes | None = None
    fault: RecordFault | None = None
    closes: Barrier | None = None
    joined: bool = False
    time_ms: int = -1
    place: PlaceInLog | None = None
    width: int | None = None
    has_other_key: bool = False

    @property
    def row_key(self) -> bytes | None:
        """The key of its change; that of the record, as it came, without one."""
        return self.key if self.change is None else self.change.key

    def as_change(
        self, change: RowChange, place: PlaceInLog | None, width: int | None, *, has_other_key: bool
    ) -> TopicEntry:
        """The record, which is no barrier, with what it says."""
        return TopicEntry(  # `_replace` takes three times as long
            self.offset,
            self.key,
            self.value,
            change=change,
            epoch=self.epoch,
            time_ms=self.time_ms,
            place=place,
            width=width,
            has_other_key=has_other_key,
        )

    def no_change(self, where: Place) -> InputError:
        """The error for a record without key or value, or for an invalid one."""
        if self.fault is not None:
            code, found, expected, next_step = self.fault
            return InputError(code, where=str(where), found=found, expected=expected, next_step=next_step)
        key, value = self.key, self.value
        return InputError(
            Code.TOMBSTONE_UNSUPPORTED if key and value is None else Code.EMPTY_RECORD,
            where=str(where),
            found=f"a record with {len(key or b'')} bytes of key and {len(value or b'')} of value",
        )


class Source(Protocol):
    """The records of one partition, read in order up to an end that can be moved."""

    def entries(self) -> Iterator[TopicEntry]:
        """The entries from where the last call stopped up to the end that was fixed at the start."""

    def extend(self) -> bool:
        """Move the end to where the partition ends now; False when nothing more has come in fair time."""
