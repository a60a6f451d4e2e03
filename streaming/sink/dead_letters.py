"""Dead letters: invalid upstream records, unchanged, for an operator to examine and repair.

A letter is part of the transaction of the lane that found the record, in the batch that would have read it, so it is
there exactly once if the batch is, whatever crashes. The record is read again from the upstream, for its original
bytes.

    key, value     the record's own, null where they are null; both null of a job that masks columns: what of an
                   invalid record is to be masked is not known
    header code    the error code
    header place   topic-partition@offset of the record
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from state.values.plan import Parked
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located

CODE_HEADER, PLACE_HEADER = "code", "place"
PARTITIONS = 1
"""Partitions of the topic: letters are few, and are read in order."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One invalid record; `place` is its topic-partition@offset."""

    key: bytes | None
    value: bytes | None
    code: str
    place: str

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers of the record."""
        return {CODE_HEADER: self.code.encode(), PLACE_HEADER: self.place.encode()}

    @property
    def without_content(self) -> DeadLetter:
        """The letter that says only which record it is."""
        return replace(self, key=None, value=None)


ReadLetters = Callable[[Sequence[Parked]], Iterable[DeadLetter]]
"""Reads the letters of parked records, see `read_letters`. It is pickled to the lanes."""


def read_letters(kafka: KafkaSettings, topic: str, parked: Sequence[Parked]) -> Iterator[DeadLetter]:
    """The records of an upstream topic, one at a time, in the order in which the broker sends them.

    Raises: InputError(DATA_LOST), EnvironmentProblem as `RangeReader.read`.
    """
    wanted = {(item.partition, item.offset): item.code for item in parked}
    ranges: dict[int, tuple[int, int]] = {}
    for partition, offset in wanted:
        first, end = ranges.get(partition, (offset, offset))
        ranges[partition] = min(first, offset), max(end, offset + 1)
    with RangeReader(kafka) as reader:
        for chunk in reader.read(topic, ranges):
            for message in chunk:
                found_at = located(message)
                if found_at in wanted:
                    key, value = message.key(), message.value()
                    text = f"{topic}-{found_at[0]}@{found_at[1]}"
                    yield DeadLetter(_bytes(key), _bytes(value), wanted[found_at], text)


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


WriteEarlyLetters = Callable[[Sequence[Parked], str], None]
"""Writes the letters of records that were parked while no job was open, as far as they are not there yet.

The second argument is a transactional id that nothing else uses.
Raises: TopicError when the topic can't be made; InputError(DATA_LOST); EnvironmentProblem.
"""


def missing_letters(
    read_letters: ReadLetters, parked: Sequence[Parked], places: set[str], upstream: str
) -> list[DeadLetter]:
    """The letters that are not among those at `places`, which are there."""
    missing = [item for item in parked if f"{upstream}-{item.partition}@{item.offset}" not in places]
    return list(read_letters(missing)) if missing else []
