from __future__ import annotations

import numpy as np

from streaming.demo.latency import Latencies, percentile
from tests.bench.latencies import course_ms, during

FIVE = Latencies(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([10.0, 20.0, 30.0, 40.0, 50.0]))


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([], 0.99) == 0.0
    assert [percentile([3, 1, 2, 4], share) for share in (0.25, 0.5, 0.51, 0.99, 1.0)] == [1, 2, 3, 4, 4]
    assert FIVE.percentile_ms(0.5) == 30.0


def test_latencies_of_what_was_produced_between_two_instants() -> None:
    assert FIVE.between(2.0, 4.0).took_ms.tolist() == [20.0, 30.0, 40.0]
    assert len(FIVE.between(6.0, 7.0)) == 0


def test_latencies_inside_and_outside_of_spans() -> None:
    spans = [(0.0, 1.0), (3.5, 9.0), (4.0, 4.5)]
    assert during(FIVE, spans).took_ms.tolist() == [10.0, 40.0, 50.0]
    assert during(FIVE, spans, outside=True).took_ms.tolist() == [20.0, 30.0]
    assert len(during(FIVE, [])) == 0
    assert len(during(FIVE, [], outside=True)) == 5


def test_a_course_has_the_percentile_of_each_second() -> None:
    mixed = Latencies(np.array([11.0, 10.2, 10.5, 12.9]), np.array([7.0, 10.0, 30.0, 9.0]))
    assert course_ms(mixed, 0.99) == ((0.0, 30.0), (2.0, 9.0))
    assert course_ms(mixed, 0.5) == ((0.0, 10.0), (2.0, 9.0))
