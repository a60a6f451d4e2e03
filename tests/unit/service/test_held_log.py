"""A partition that an open transaction holds is one line in the log where that lasts, and one where it is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from structlog.testing import capture_logs

from streaming.core.health import HealthFacts, StuckPartition
from streaming.service.held_log import HeldRecordsLog

FACTS = HealthFacts("orders", 1_000, late_s=30.0, started_s=0.0)


def logged(*moments: tuple[float, tuple[StuckPartition, ...]]) -> list[dict[str, Any]]:
    held_log = HeldRecordsLog()
    with capture_logs() as lines:
        for now_s, held in moments:
            held_log.update(replace(FACTS, held=held), now_s)
    return [dict(line) for line in lines]


def test_a_usual_transaction_is_not_logged() -> None:
    assert (
        logged((100, (StuckPartition(0, 7, 9, 100),)), (109, (StuckPartition(0, 7, 9, 100),)), (110, ()))
        == []
    )


def test_what_lasts_is_logged_once_and_once_where_it_is_over() -> None:
    held = StuckPartition(3, 7, 19, 100)
    begin, over = logged((105, (held,)), (110, (held,)), (111, (held,)), (500, (held,)), (501, ()), (502, ()))
    assert (begin["event"], begin["where"], begin["late_s"], begin["records"]) == (
        "records_held",
        "orders-3@7",
        10,
        12,
    )
    assert begin["next_step"].startswith("end its producer")
    assert (over["event"], over["where"], over["lasted_s"]) == ("records_held_over", "orders-3@7", 401)


def test_each_partition_and_each_transaction_is_logged_apart() -> None:
    first, second, third = (
        StuckPartition(0, 7, 9, 100),
        StuckPartition(1, 5, 6, 100),
        StuckPartition(0, 9, 12, 115),
    )
    lines = logged((112, (first, second)), (116, (second, third)), (130, (second, third)))
    assert [(line["event"], line["where"]) for line in lines] == [
        ("records_held", "orders-0@7"),
        ("records_held", "orders-1@5"),
        ("records_held_over", "orders-0@7"),
        ("records_held", "orders-0@9"),
    ]
