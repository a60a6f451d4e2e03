"""Offsets that show the lag: what the broker does not take now it may take later, unless the right is missing."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError

from streaming.kafka.clients import KafkaSettings
from streaming.service.lag_group import LagGroup


def group() -> LagGroup:
    return LagGroup(KafkaSettings("localhost:1"), "orders", "backfill-orders", clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("code", "goes_on"),
    [
        (KafkaError.NOT_COORDINATOR, True),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, True),
        (KafkaError.REQUEST_TIMED_OUT, True),
        (KafkaError._TRANSPORT, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False),
    ],
)
def test_only_a_missing_right_ends_it_and_is_logged_once(
    code: int, goes_on: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    lag = group()
    for _ in range(3):
        lag._on_commit(KafkaError(code), [])
    assert capsys.readouterr().out.count("grant Read") == (0 if goes_on else 1)
    assert lag._is_refused is not goes_on


def test_a_broker_that_is_away_delays_nothing() -> None:
    lag, began_s = group(), time.monotonic()
    lag._commit((1, 2))
    lag.close()
    assert time.monotonic() - began_s < 10
