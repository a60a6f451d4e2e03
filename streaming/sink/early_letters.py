"""Dead letters of a table that has no job yet, in `<upstream>.dead-letters`.

No lane has a transaction then that they could be part of. So the driver writes them, when the plan that parks their
records is in the journal and before anything of it is done, and writes each place once: what is there already is looked
at behind the fencing of every earlier writer. Letters of two services on one upstream are in one topic, each once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.settings.limits import KAFKA_MESSAGE_BYTES, Limits
from schemas.topics import DEAD_LETTERS_SUFFIX
from state.values.plan import Parked
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS, KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of
from streaming.kafka.topics import create_topic
from streaming.sink.dead_letters import PARTITIONS, PLACE_HEADER, EarlyLetters, ReadLetters, missing_letters
from streaming.sink.kafka_client import UNDECIDED_S, open_kafka_writer


@dataclass(frozen=True, slots=True)
class TableLetters(EarlyLetters):
    """Those of an upstream topic."""

    kafka: KafkaSettings
    upstream: str
    limits: Limits
    read_letters: ReadLetters

    @property
    def topic(self) -> str:
        """The topic that they are in."""
        return f"{self.upstream}{DEAD_LETTERS_SUFFIX}"

    def write(self, parked: Sequence[Parked], writer_id: str) -> None:
        """As `EarlyLetters.write`."""
        size = str(max(self.limits.message_bytes, KAFKA_MESSAGE_BYTES))
        create_topic(self.kafka, self.topic, PARTITIONS, config={"max.message.bytes": size})
        with open_kafka_writer(self.kafka, writer_id, TRANSACTION_TIMEOUT_MS) as writer:
            missing = missing_letters(self.read_letters, parked, self._places(), self.upstream)
            if missing:
                with writer.transaction():
                    for letter in missing:
                        writer.letter_to(self.topic, letter)

    def _places(self) -> set[str]:
        with RangeReader(self.kafka) as reader:
            marks = reader.await_stable(self.topic, timeout_s=UNDECIDED_S)
            ranges = {partition: (each.earliest, each.stable) for partition, each in enumerate(marks)}
            found = (
                header_of(each, PLACE_HEADER) for chunk in reader.read(self.topic, ranges) for each in chunk
            )
            return {place.decode("utf-8", "replace") for place in found if place is not None}
