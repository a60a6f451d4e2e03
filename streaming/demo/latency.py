"""Live latency: from produced to readable, for every live change, measured from outside.

A change becomes readable for committed readers together with the barrier that closes its interval. So two
things are enough: when each partition's last stable offset moved (a thread asks every 20 ms), and, afterwards,
at which offsets the output's barriers lie and at which times the upstream's changes were produced (CreateTime).
Either topic may have its barriers in a separate topic.
"""

from __future__ import annotations

import bisect
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from schemas.records import BARRIER_HEADER
from streaming.kafka.barriers import FoundBeside, beside_barrier_in
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.kafka.topics import admin, stable_offsets, watermarks

_ASK_S = 0.02
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of live changes: when each was produced (Unix seconds), and milliseconds until it was readable."""

    produced_s: Floats
    took_ms: Floats

    def __len__(self) -> int:
        return len(self.took_ms)

    def between(self, since: float, until: float) -> Latencies:
        """Latencies of changes produced between two instants (Unix seconds)."""
        wanted = (self.produced_s >= since) & (self.produced_s <= until)
        return Latencies(self.produced_s[wanted], self.took_ms[wanted])

    def percentile_ms(self, share: float) -> float:
        return percentile(self.took_ms, share)


@dataclass
class StableOffsets:
    """Watches an output topic while it is open; `latencies` gives the latencies of the upstream's changes afterwards.

    `topic` has the output's barriers, `barriers` is the upstream's separate topic of barriers, if any.
    `moves[p]` are (last stable offset of partition p, Unix seconds at which it was first seen).
    """

    kafka: KafkaSettings
    upstream: str
    topic: str
    partitions: int
    barriers: str | None = None
    moves: list[list[tuple[int, float]]] = field(init=False)
    _upstream_ends: list[int] = field(init=False)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> StableOffsets:
        self.moves = [[] for _ in range(self.partitions)]
        self._upstream_ends = [marks.stable for marks in watermarks(self.kafka, self.upstream)]
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        client = admin(self.kafka)
        while not self._stop.wait(_ASK_S):
            offsets = stable_offsets(self.kafka, self.topic, self.partitions, client=client)
            now = time.time()
            for moves, stable in zip(self.moves, offsets, strict=True):
                if not moves or moves[-1][0] != stable:
                    moves.append((stable, now))

    def latencies(self) -> Latencies:
        """Latencies of all changes since the watch began whose barrier was seen to become readable."""
        with RangeReader(self.kafka) as reader:
            readable = self._barriers_readable(reader)
            produced_s, readable_s = array("d"), array("d")
            for partition, marks in enumerate(reader.watermarks(self.upstream)):
                for times, epoch in self._intervals(reader, partition, marks.stable):
                    if seen := readable.get(epoch):
                        produced_s.extend(times)
                        readable_s.extend([seen] * len(times))
        produced = np.array(produced_s)
        return Latencies(produced, (np.array(readable_s) - produced) * 1_000)

    def _intervals(self, reader: RangeReader, partition: int, end: int) -> Iterator[tuple[array[float], int]]:
        """Times of production of the changes of each interval since the watch began, with its barrier."""
        ends = self._ends_beside(reader, partition)
        interval, waiting = next(ends, None), array("d")
        for chunk in reader.read(self.upstream, {partition: (self._upstream_ends[partition], end)}):
            for message in chunk:
                while interval is not None and interval.end <= located(message)[1]:
                    yield waiting, interval.barrier.curr
                    interval, waiting = next(ends, None), array("d")
                epoch = _epoch(message)
                if epoch is None:
                    waiting.append(message.timestamp()[1] / 1_000)
                    continue
                yield waiting, epoch
                waiting = array("d")
        if interval is not None and interval.end <= end:
            yield waiting, interval.barrier.curr

    def _ends_beside(self, reader: RangeReader, partition: int) -> Iterator[FoundBeside]:
        """The barriers of the upstream's separate topic; none where they are in the data."""
        if self.barriers is None:
            return iter(())
        marks = reader.watermarks(self.barriers)[partition]
        chunks = reader.read(self.barriers, {partition: (marks.earliest, marks.stable)})
        return iter([found for chunk in chunks for found in map(beside_barrier_in, chunk) if found])

    def _barriers_readable(self, reader: RangeReader) -> dict[int, float]:
        """Times at which each barrier was readable in every partition of the output."""
        last: dict[int, float] = {}
        for partition, marks in enumerate(reader.watermarks(self.topic)):
            for chunk in reader.read(self.topic, {partition: (marks.earliest, marks.stable)}):
                for message in chunk:
                    epoch = _epoch(message)
                    if epoch is not None:
                        seen = self.readable_at(partition, located(message)[1])
                        if seen is not None:
                            last[epoch] = max(last.get(epoch, 0.0), seen)
        return last

    def readable_at(self, partition: int, offset: int) -> float | None:
        """Time at which a record was first seen to be readable, in Unix seconds; None if the watch ended before."""
        moves = self.moves[partition]
        index = bisect.bisect_right(moves, offset, key=lambda move: move[0])
        return moves[index][1] if index < len(moves) else None


def _epoch(message: Message) -> int | None:
    header = header_of(message, BARRIER_HEADER)
    return None if header is None else int(header)


def percentile(values: Sequence[float] | Floats, share: float) -> float:
    """The smallest value that `share` of all values do not exceed; 0 for no values."""
    return float(np.quantile(values, share, method="inverted_cdf")) if len(values) else 0.0
