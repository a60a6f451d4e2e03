"""An output partition ends where the batch begins or where it ends; there is no third."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pytest

from schemas.errors import BackfillError, Code
from streaming.lane.output import LaneOutput
from streaming.runtime.topics import Partition

PLACES = ("out", 0), ("out", 1)


@dataclass
class Tails:
    """Partitions with one offset a barrier; None is an empty one, -1 one whose records retention took."""

    tails: dict[Partition, int | None]

    def ends(self, places: Collection[Partition]) -> dict[Partition, int]:
        return {place: 0 if self.tails[place] is None else 10 for place in places}

    def last_barrier(self, topic: str, partition: int) -> int | None:
        tail = self.tails[topic, partition]
        return None if tail == -1 else tail

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody needs {name} for a look")


def look(*tails: int | None, before: int | None = 5, known: int = 99) -> bool:
    output = LaneOutput(Tails(dict(zip(PLACES, tails, strict=True))))
    return output.already_sent(dict.fromkeys(PLACES, before), 9, dict.fromkeys(PLACES, known))


@pytest.mark.parametrize(
    ("tails", "before", "sent"),
    [
        ((5, 5), 5, False),
        ((9, 9), 5, True),
        ((None, None), None, False),
        ((9, 9), None, True),
        ((-1, -1), 5, False),
    ],
)
def test_a_batch_is_sent_or_not(tails: tuple[int | None, int | None], before: int | None, sent: bool) -> None:
    assert look(*tails, before=before) is sent


def test_a_partition_that_ends_where_the_last_batch_left_it_is_not_looked_at() -> None:
    assert look(7, 7, known=10) is False


@pytest.mark.parametrize(
    ("tails", "code", "status"),
    [
        ((7, 7), Code.OUTPUT_OUT_OF_STEP, 6),  # the state was restored, and knows less than was sent
        ((12, 12), Code.OUTPUT_OUT_OF_STEP, 6),
        ((3, 3), Code.OUTPUT_OUT_OF_STEP, 6),  # the output was
        ((None, None), Code.OUTPUT_TOPIC_MISSING, 5),  # it was made again
        ((9, 5), Code.FOREIGN_RECORDS, 5),
    ],
)
def test_a_third_end_is_refused(tails: tuple[int | None, int | None], code: Code, status: int) -> None:
    with pytest.raises(BackfillError) as caught:
        look(*tails)
    assert (caught.value.code, caught.value.exit_status) == (code, status)
    assert str(caught.value.where).startswith("out")
