"""An output partition ends where the batch begins or where it ends; there is no third."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pytest

from schemas.errors import BackfillError, Code
from streaming.kafka.topics import PartitionId
from streaming.sink.kafka_reader import LastBarrier
from streaming.sink.kafka_writer import KafkaWriter, OutputClient
from streaming.sink.output import SinkPartition

Places = tuple[SinkPartition, SinkPartition]
INLINE = SinkPartition("out", 0), SinkPartition("out", 1)
BESIDE = SinkPartition("out", 0, "out.barriers"), SinkPartition("out", 1, "out.barriers")


@dataclass
class Tails(OutputClient):
    """Partitions that end at offset 10; None is an empty one, -1 one with an end and no committed record."""

    tails: dict[PartitionId, int | None]
    first: int = 0
    end: int = 0

    def ends(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        return {place: 0 if self.tails["out", place[1]] is None else 10 for place in places}

    def last_barriers(self, places: Collection[SinkPartition]) -> dict[SinkPartition, LastBarrier | None]:
        tails = {place: self.tails[place.topic, place.partition] for place in places}
        return {
            place: None if tail in (None, -1) else LastBarrier(tail, self.end)
            for place, tail in tails.items()
        }

    def first_offset(self, topic: str, partition: int) -> int:
        return self.first

    def expect(self, topics: Collection[str]) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody needs {name} for a look")


@pytest.fixture(params=[INLINE, BESIDE], ids=["barriers in the output", "barriers beside it"], autouse=True)
def places(request: pytest.FixtureRequest) -> Places:
    places: Places = request.param
    return places


def look(places: Places, *tails: int | None, before: int | None = 5, known: int = 99, first: int = 0) -> bool:
    held = {(place.topic, place.partition): tail for place, tail in zip(places, tails, strict=True)}
    logs = (known,) if places is INLINE else (known, known)
    output = KafkaWriter(Tails(held, first))
    return output.already_sent(dict.fromkeys(places, before), 9, dict.fromkeys(places, (*logs, 0)))


@pytest.mark.parametrize(
    ("tails", "before", "sent"),
    [
        ((5, 5), 5, False),
        ((9, 9), 5, True),
        ((None, None), None, False),
        ((9, 9), None, True),
        ((-1, -1), None, False),  # the job's first transaction was aborted
    ],
)
def test_a_batch_is_sent_or_not(
    places: Places, tails: tuple[int | None, int | None], before: int | None, sent: bool
) -> None:
    assert look(places, *tails, before=before) is sent


def test_a_partition_that_ends_where_the_last_batch_left_it_is_not_looked_at(places: Places) -> None:
    assert look(places, 7, 7, known=10) is False


@pytest.mark.parametrize(
    ("tails", "code", "status"),
    [
        ((7, 7), Code.OUTPUT_OUT_OF_STEP, 6),  # the state was restored, and knows less than was sent
        ((12, 12), Code.OUTPUT_OUT_OF_STEP, 6),
        ((3, 3), Code.OUTPUT_OUT_OF_STEP, 6),  # the output was
        ((None, None), Code.OUTPUT_TOPIC_MISSING, 5),  # it was made again
        ((-1, -1), Code.OUTPUT_TOPIC_MISSING, 5),  # retention took all that was in it
        ((9, 5), Code.FOREIGN_RECORDS, 5),
    ],
)
def test_a_third_end_is_refused(
    places: Places, tails: tuple[int | None, int | None], code: Code, status: int
) -> None:
    with pytest.raises(BackfillError) as caught:
        look(places, *tails)
    assert (caught.value.code, caught.value.exit_status) == (code, status)
    assert str(caught.value.where).startswith("out")


def test_a_first_batch_is_not_sent_again_into_a_partition_that_lost_what_it_held(places: Places) -> None:
    assert look(places, -1, -1, before=None, first=0) is False
    with pytest.raises(BackfillError) as caught:
        look(places, -1, -1, before=None, first=10)
    assert caught.value.code is Code.OUTPUT_TOPIC_MISSING
