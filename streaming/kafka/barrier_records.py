"""Which records are barriers, in the form that the place where they stand has: the data, or a topic of their own."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Message

from schemas.avro.codec import decode_barrier
from schemas.json.barriers import decode_beside
from schemas.records import BARRIER_HEADER, Barrier
from streaming.kafka.consumer import header_of, located, place


@dataclass(frozen=True, slots=True)
class FoundBeside:
    """A barrier of a barrier topic, and where it stands there."""

    partition: int
    offset: int
    barrier: Barrier
    end: int


def barrier_in(message: Message, *, beside: bool) -> Barrier | None:
    """The barrier that a record is, of a barrier topic or of the data; None if it is none. Raises: InputError."""
    if beside:
        found = beside_barrier_in(message)
        return None if found is None else found.barrier
    header = header_of(message, BARRIER_HEADER)
    return None if header is None else decode_barrier(header, message.value(), where=place(message))


def beside_barrier_in(message: Message) -> FoundBeside | None:
    """The barrier that a record of a barrier topic is, None without the header. Raises: as `decode_beside`."""
    header = header_of(message, BARRIER_HEADER)
    if header is None:
        return None
    partition, offset = located(message)
    where = place(message)
    found = decode_beside(header, message.key(), message.value(), partition=partition, where=where)
    return FoundBeside(partition, offset, found.barrier, found.end)
