"""Cases that a plain run leaves to `make thorough`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest


def pairs(some: Mapping[str, object], others: Mapping[str, object]) -> list[object]:
    """Parameters for every pair, by name; a plain run has each of `others` once, with the next of `some` in turn."""
    return [
        pytest.param(
            one,
            other,
            id=f"{name}-{other_name}",
            marks=() if number == place % len(some) else pytest.mark.thorough,
        )
        for place, (other_name, other) in enumerate(others.items())
        for number, (name, one) in enumerate(some.items())
    ]
