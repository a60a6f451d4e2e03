"""Latencies of parts of a run: inside and outside of spans of time, and second by second."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming.demo.latency import Latencies, percentile
from tests.bench.report.line import Course, course


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
