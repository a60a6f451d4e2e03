"""Outputs as the driver reads them at a start: the simulated `OutputReader`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from schemas.avro.codec import decode_barrier
from schemas.records import Barrier
from streaming.kafka.topics import Partition
from streaming.protocol.recovery.forward import Ending
from tests.simulation.broker import Broker
from tests.simulation.changelog import Arrivals


class Reader:
    """Waits, like a lane, until what lies there is decided."""

    def __init__(self, broker: Broker, arrivals: Arrivals) -> None:
        self._broker, self._arrivals = broker, arrivals

    def _barriers(self, topic: str) -> Iterator[list[Barrier]]:
        for place in self._broker.topics.partitions(topic):
            self._broker.scheduler.step(f"read {topic}-{place[1]}", partial(self._is_decided, place))
            yield [
                decode_barrier(entry.barrier, entry.value, where="output")
                for entry in self._broker.topics.committed(place)
                if entry.barrier is not None
            ]

    def _is_decided(self, place: Partition) -> bool:
        return not self._broker.topics.is_undecided(place)

    def tails(self, topic: str) -> list[Barrier | None] | None:
        if not self._broker.topics.partitions(topic):
            return None
        return [barriers[-1] if barriers else None for barriers in self._barriers(topic)]

    def begins(self, topic: str) -> list[int | None]:
        return [barriers[0].curr if barriers else None for barriers in self._barriers(topic)]

    def endings(self, topic: str, after: int) -> list[Ending]:
        return [
            Ending(
                barriers[-1].curr if barriers else None,
                tuple(barrier for barrier in barriers if barrier.curr > after and barrier.progress),
            )
            for barriers in self._barriers(topic)
        ]

    def newest(self) -> int:
        (place, *_) = zip(self._arrivals.changelog.barriers, self._arrivals.counts, strict=True)
        barriers, count = place
        barrier = barriers[count - 1].barrier if count else None
        return barrier.curr if barrier else 0
