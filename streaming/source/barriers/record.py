"""Which records of an upstream's topics are barriers, in the form that the place where they stand has."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Message

from schemas.avro.codec import decode_barrier
from schemas.json.barriers import decode_beside
from schemas.records import BARRIER_HEADER, Barrier
from schemas.topics import UpstreamTopics
from streaming.kafka.consumer import header_of, located, place


@dataclass(frozen=True, slots=True)
class FoundBeside:
    """A barrier of a barrier topic, and where it stands there."""

    partition: int
    offset: int
    barrier: Barrier
    end: int


def barrier_in(topics: UpstreamTopics, message: Message) -> Barrier | None:
    """The barrier that a record of `topics.with_barriers` is, None if it is none. Raises: InputError."""
    if topics.barriers is not None:
        beside = beside_barrier_in(message)
        return None if beside is None else beside.barrier
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
