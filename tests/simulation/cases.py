"""Histories that are enumerated: each has a name, and is played only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Case(NamedTuple):
    """One history. `play` gives what is wrong at its end."""

    where: str
    play: Callable[[], list[str]]


def broken(cases: Iterable[Case]) -> tuple[int, list[str]]:
    """The number of cases played, and the broken ones, each with the first of its faults."""
    count, found = 0, list[str]()
    for case in cases:
        count += 1
        if wrong := case.play():
            found.append(f"{case.where}: {wrong[0]}")
    return count, found
