"""Live latency: from produced to readable, for every live change, measured from outside.

A change becomes readable for committed readers together with the barrier that closes its interval. So two
things are enough: when each partition's last stable offset moved (a thread asks every 20 ms), and, afterwards,
at which offsets the output's barriers lie and at which times the upstream's changes were produced (CreateTime).
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from schemas.records import BARRIER_HEADER
from streaming.runtime.consumer import RangeReader, header_of, located
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.topics import admin, watermarks

_ASK_S = 0.02


@dataclass
class StableOffsets:
    """Watches an output topic. `moves[p]` are (last stable offset, Unix seconds at which it was first seen)."""

    kafka: KafkaSettings
    topic: str
    partitions: int
    moves: list[list[tuple[int, float]]] = field(init=False)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> StableOffsets:
        self.moves = [[] for _ in range(self.partitions)]
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        client = admin(self.kafka)
        while not self._stop.wait(_ASK_S):
            marks = watermarks(self.kafka, self.topic, client=client)
            now = time.time()
            for moves, mark in zip(self.moves, marks, strict=True):
                if not moves or moves[-1][0] != mark.stable:
                    moves.append((mark.stable, now))

    def readable_at(self, partition: int, offset: int) -> float | None:
        """When a record was first seen to be readable, in Unix seconds; None if the watch ended before."""
        moves = self.moves[partition]
        index = bisect.bisect_right(moves, offset, key=lambda move: move[0])
        return moves[index][1] if index < len(moves) else None


def live_latencies_ms(
    kafka: KafkaSettings, upstream: str, watch: StableOffsets, *, since: float, until: float
) -> list[float]:
    """Milliseconds from produced to readable of each change that was produced between two instants."""
    with RangeReader(kafka) as reader:
        readable = _barriers_readable(reader, watch)
        latencies: list[float] = []
        for partition, marks in enumerate(reader.watermarks(upstream)):
            waiting: list[float] = []
            for chunk in reader.read(upstream, {partition: (marks.earliest, marks.stable)}):
                for message in chunk:
                    epoch = _epoch(message)
                    if epoch is None:
                        produced = message.timestamp()[1] / 1_000
                        if since <= produced <= until:
                            waiting.append(produced)
                    elif waiting:
                        seen = readable.get(epoch)
                        latencies += [(seen - produced) * 1_000 for produced in waiting] if seen else []
                        waiting = []
        return latencies


def _barriers_readable(reader: RangeReader, watch: StableOffsets) -> dict[int, float]:
    """When each barrier was readable in every partition of the output."""
    last: dict[int, float] = {}
    for partition, marks in enumerate(reader.watermarks(watch.topic)):
        for chunk in reader.read(watch.topic, {partition: (marks.earliest, marks.stable)}):
            for message in chunk:
                epoch = _epoch(message)
                if epoch is not None:
                    seen = watch.readable_at(partition, located(message)[1])
                    if seen is not None:
                        last[epoch] = max(last.get(epoch, 0.0), seen)
    return last


def _epoch(message: Message) -> int | None:
    header = header_of(message, BARRIER_HEADER)
    return None if header is None else int(header)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all values do not exceed; 0 for no values."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0
