"""The last hour of a service: every batch counts once, in as many points as are ever drawn."""

from __future__ import annotations

from itertools import pairwise

import pytest

from streaming.observe.hour import History, Span


def batch(at: float, elapsed_s: float, *, latency_s: float | None = 0.3, sent: int = 5) -> Span:
    return Span(
        at=at,
        elapsed_s=elapsed_s,
        latency_s=latency_s,
        behind_s=1.0,
        batch_s=0.1,
        changes=10,
        rows={"copy": 100},
        sent={"copy": sent} if sent else {},
    )


def test_batches_of_a_second_are_one_point_with_the_longest_latency() -> None:
    history = History()
    for number, latency_s in enumerate([0.2, None, 0.9, 0.1, 0.2, 0.2]):
        history.note(batch(10 + 0.25 * number, 0.25, latency_s=latency_s, sent=number))
    first, second = history.points()
    assert (first.at, first.latency_s) == (10.75, 0.9)
    assert first.changes_per_s == pytest.approx(40)
    assert (first.rows_per_s, first.sent_per_s) == ({"copy": 400.0}, {"copy": 6.0})
    assert (second.at, second.sent_per_s) == (11.25, {"copy": 18.0})


def test_an_hour_is_kept_in_bounded_memory_and_every_record_counts_once() -> None:
    history = History()
    for number in range(4_000):
        history.note(batch(float(number), 1.0))
    points = history.points()
    assert len(points) == 900
    assert 3_590 <= points[-1].at - points[0].at <= 3_610
    assert {point.sent_per_s["copy"] for point in points} == {5.0}
    gaps = [later.at - earlier.at for earlier, later in pairwise(points)]
    assert (set(gaps[:299]), set(gaps[301:])) == ({10.0}, {1.0})


def test_a_service_without_batches_has_no_history() -> None:
    assert History().points() == []
