"""The ends of a live topic's partitions, asked again while a commit becomes visible in one after another."""

from __future__ import annotations

import time

from confluent_kafka import IsolationLevel

from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, stable_pauses_s
from streaming.kafka.topics import Watermarks, admin, end_offsets

_UNDECIDED_S = 75.0
"""A transaction that hangs is over by then."""


class Ends:
    """Of the topics of one judgement. `settle_s` is how long is waited for more, in all.

    Ends are last stable offsets, as what a transaction has sent counts as a whole or not at all.
    """

    def __init__(self, settings: KafkaSettings, settle_s: float) -> None:
        self._settings, self._client, self._settle_s = settings, admin(settings), settle_s
        self._deadline_s: float | None = None

    def beyond(self, topic: str, partition: int, end: int) -> int | None:
        """The end of a partition once it lies behind `end`; None when it has not come to that in time."""
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + self._settle_s
        place, pauses_s = (topic, partition), stable_pauses_s()
        committed = IsolationLevel.READ_COMMITTED
        while True:
            found = end_offsets(self._settings, [place], client=self._client, isolation=committed)[place]
            if found > end:
                return found
            if time.monotonic() >= self._deadline_s:
                return None
            self._client.poll(next(pauses_s))

    def decided(self, topic: str, partition: int) -> int:
        """The end of a partition once all that is in it now is decided. Raises: as `await_decided`."""
        return await_decided(self._settings, topic, partition)[partition].stable


def await_decided(
    settings: KafkaSettings, topic: str, partition: int | None = None
) -> tuple[Watermarks, ...]:
    """The watermarks of a topic once all that is in it (in one partition of it) now is decided.

    A commit becomes visible topic by topic: data that a barrier beside it closes may come after the barrier.
    Raises: TopicError(BARRIER_STALLED) for a transaction that stays open.
    """
    with RangeReader(settings) as reader:
        partitions = None if partition is None else [partition]
        return reader.await_stable(topic, timeout_s=_UNDECIDED_S, partitions=partitions)
