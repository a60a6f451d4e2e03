"""Continues a topic that an earlier run has filled: the version of every key is found by reading it.

The rows themselves need not be kept (see `streaming.events.rows`), so reading leaves 13 bytes a record: a hash of its
key, its op, a checksum of its value. Then the keys of the numbers 0, 1, 2, … are made and looked up by their
hashes, and the last value of each key is made and compared by its checksum. If all agree, the topic is what
this table and seed give, and nothing illegal can follow; if not, it is foreign and stays untouched.
"""

from __future__ import annotations

import zlib
from array import array
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message
from xxhash import xxh3_64_intdigest

from schemas.errors import Code, TopicError
from schemas.records import BARRIER_HEADER, Op
from streaming.events.encoders import EventEncoder
from streaming.events.generator import ChangeGenerator
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS, KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of

_CHUNK = 65_536


@dataclass(slots=True)
class _TopicHistory:
    """Hashes, ops and checksums of the changes read so far; those of one key are in the order of the log."""

    keys: array[int] = field(default_factory=lambda: array("Q"))
    ops: bytearray = field(default_factory=bytearray)
    checksums: array[int] = field(default_factory=lambda: array("I"))

    def add(self, message: Message, events: EventEncoder) -> None:
        """Add a record. Raises: ValueError for one that is no test event of any table."""
        if header_of(message, BARRIER_HEADER) is not None:
            return
        key, value = message.key(), message.value()
        if not isinstance(key, bytes) or isinstance(value, str):
            raise ValueError("no bytes")
        content = events.read_back(value)
        if content is not None:
            self.keys.append(xxh3_64_intdigest(key))
            self.ops.append(content.op)
            self.checksums.append(zlib.crc32(content.value))


def resume(settings: KafkaSettings, topic: str, generator: ChangeGenerator) -> int:
    """Bring the generator to the end of the topic, and return the number of changes in it.

    No other producer may write changes to the topic meanwhile.

    Raises: TopicError(FOREIGN_RECORDS) when the topic holds anything but barriers and the changes of this
        generator: another table, another seed, another producer.
    """
    history = _TopicHistory()
    with RangeReader(settings) as reader:
        marks = reader.await_stable(topic, timeout_s=TRANSACTION_TIMEOUT_MS / 1000)
        ranges = {partition: (mark.earliest, mark.stable) for partition, mark in enumerate(marks)}
        for chunk in reader.read(topic, ranges):
            try:
                for message in chunk:
                    history.add(message, generator.events)
            except ValueError:
                raise _foreign(topic) from None
    if history.keys:
        _restore(topic, generator, history)
    return len(history.ops)


def _restore(topic: str, generator: ChangeGenerator, history: _TopicHistory) -> None:
    keys = np.frombuffer(history.keys, np.uint64)
    known = len(np.unique(keys))
    if known > generator.capacity:
        raise _foreign(topic)
    numbers = _numbers_of(topic, generator, keys, known)
    versions = np.bincount(numbers, minlength=known).astype(np.uint32)
    last = np.zeros(known, np.int64)
    last[numbers] = np.arange(len(numbers))  # of several changes of a key the last one stays
    ops = np.frombuffer(history.ops, np.int8)[last]
    checksums = np.frombuffer(history.checksums, np.uint32)[last]
    for start in range(0, known, _CHUNK):
        part = slice(start, min(start + _CHUNK, known))
        made = generator.encode(np.arange(part.start, part.stop), versions[part].astype(np.int64), ops[part])
        if [zlib.crc32(value or b"") for value in made.to_pylist()] != checksums[part].tolist():
            raise _foreign(topic)
    generator.restore(versions, ops != Op.DELETE)


def _numbers_of(
    topic: str, generator: ChangeGenerator, keys: npt.NDArray[np.uint64], known: int
) -> npt.NDArray[np.intp]:
    """The key number of each change. Numbers are handed out without gaps, so they are those below `known`."""
    made = np.empty(known, np.uint64)
    for start in range(0, known, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, known), dtype=np.int64)
        made[numbers] = [xxh3_64_intdigest(key) for key in generator.encode_keys(numbers).to_pylist()]
    order = np.argsort(made)
    numbers_of: npt.NDArray[np.intp] = order[np.searchsorted(made, keys, sorter=order).clip(max=known - 1)]
    if not np.array_equal(made[numbers_of], keys):
        raise _foreign(topic)
    return numbers_of


def _foreign(topic: str) -> TopicError:
    return TopicError(
        Code.FOREIGN_RECORDS,
        where=topic,
        found="records that this table and seed do not give",
        expected="an empty topic, or one that the same generator has filled",
        next_step="name another topic, or the table and --seed that filled this one",
    )
