"""Cases that a plain run leaves to `make thorough`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

Named = Mapping[str, object] | Sequence[object]
"""Values by their names in a test's id; those of a sequence are named as they are written."""


def pairs(some: Named, others: Named) -> list[object]:
    """Parameters for every pair; a plain run has each of `others` once, with the next of `some` in turn."""
    return [
        pytest.param(
            one,
            other,
            id=f"{name}-{other_name}",
            marks=() if number == place % len(some) else pytest.mark.thorough,
        )
        for place, (other_name, other) in enumerate(_by_name(others).items())
        for number, (name, one) in enumerate(_by_name(some).items())
    ]


def _by_name(values: Named) -> Mapping[str, object]:
    return values if isinstance(values, Mapping) else {str(value): value for value in values}
