"""Latencies of parts of a run: inside and outside of spans of time, and second by second."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streaming.demo.latency import Latencies, StableOffsets, percentile
from streaming.kafka.barriers import beside_barrier_in
from streaming.kafka.consumer import RangeReader, located
from tests.bench.report.line import Course, course


@dataclass
class StableOffsetsBeside(StableOffsets):
    """Of an upstream whose barriers are in the separate topic `barriers`."""

    barriers: str = ""

    def _intervals(self, reader: RangeReader, partition: int, end: int) -> Iterator[tuple[array[float], int]]:
        marks = reader.watermarks(self.barriers)[partition]
        chunks = reader.read(self.barriers, {partition: (marks.earliest, marks.stable)})
        ends = iter([found for chunk in chunks for found in map(beside_barrier_in, chunk) if found])
        interval, waiting = next(ends, None), array("d")
        for chunk in reader.read(self.upstream, {partition: (self._upstream_ends[partition], end)}):
            for message in chunk:
                while interval is not None and interval.end <= located(message)[1]:
                    yield waiting, interval.barrier.curr
                    interval, waiting = next(ends, None), array("d")
                waiting.append(message.timestamp()[1] / 1_000)
        if interval is not None and interval.end <= end:
            yield waiting, interval.barrier.curr


def during(latencies: Latencies, spans: Sequence[tuple[float, float]], *, outside: bool = False) -> Latencies:
    """Of changes that were produced in any of these spans (Unix seconds), or outside all of them."""
    wanted = np.zeros(len(latencies), np.bool_)
    for since, until in spans:
        wanted |= (latencies.produced_s >= since) & (latencies.produced_s <= until)
    wanted ^= outside
    return Latencies(latencies.produced_s[wanted], latencies.took_ms[wanted])


def course_ms(latencies: Latencies, share: float) -> Course:
    """The latency that `share` of the changes of each second do not exceed, by when they were produced."""
    in_order = np.argsort(latencies.produced_s, kind="stable")
    pairs = zip(latencies.produced_s[in_order].tolist(), latencies.took_ms[in_order].tolist(), strict=True)
    return course(pairs, 1.0, lambda values: percentile(values, share))
