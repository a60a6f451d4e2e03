"""A table of orders, and rounds of updates, deletes and inserts all over it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.kit.real import Stage


def order(number: int, version: int = 0) -> tuple[Any, ...]:
    """A row of the service tests' own table."""
    return (number, "EU", Decimal((number * 37 + version * 55) % 400), f"n{version}")


def churn(stage: Stage, version: int) -> None:
    """One round; its rows differ from those of other versions."""
    upstream = stage.upstream
    for number in range(0, 600, 7):
        upstream.put(order(number, version))
        if number % 3 == 0 and (number + 1,) in upstream.rows:
            upstream.delete(number + 1)
