"""Two databases under one name alternate between two ranges of positions; nothing else does."""

from __future__ import annotations

import random

import pytest

from schemas.codec.logs import LogId, Position
from streaming.core.log_ranges import LogRanges

POSTGRESQL = LogId("postgresql", "shop", "shop")
FILES = LogId("mysql", "shop", None, 1)
GTIDS = LogId("mysql", "shop", None, "uuid")
SQLSERVER = LogId("sqlserver", "shop", "shop")


def stream(log: LogId, begin: int, count: int) -> list[Position]:
    """Changes of one database."""
    return [(begin + n,) + (1,) * (log.width - 1) for n in range(count)]


def mixed(*streams: list[Position], seed: int) -> list[Position]:
    """Changes of databases, each in its order."""
    draw, left = random.Random(seed), [list(reversed(each)) for each in streams]
    found = []
    while any(left):
        found.append(draw.choice([each for each in left if each]).pop())
    return found


def ranges(log: LogId, positions: list[Position]) -> LogRanges:
    found = LogRanges(log)
    for position in positions:
        found.add(position)
    return found


@pytest.mark.parametrize("log", [POSTGRESQL, FILES, SQLSERVER])
@pytest.mark.parametrize("seed", range(5))
def test_two_databases_under_one_name_are_found(log: LogId, seed: int) -> None:
    found = ranges(log, mixed(stream(log, 100, 200), stream(log, 900_000, 200), seed=seed))
    assert found.is_shared
    assert "goes back and forth" in str(found)


@pytest.mark.parametrize("log", [POSTGRESQL, FILES, GTIDS, SQLSERVER])
def test_one_database_is_not(log: LogId) -> None:
    whole = stream(log, 1_000, 100)
    # Sent again, twice, and cut short by another kill; and where retention has taken the beginning.
    again = whole[:60] + whole[30:50] + whole[10:] + whole[70:]
    for positions in again, whole[50:60] + again, whole + whole:
        assert ranges(log, positions).returns == 0
    # Restored twice, to lower positions each time, and rising over the old ones again.
    assert ranges(log, whole + stream(log, 500, 700) + stream(log, 200, 1_200)).returns == 0
    # Moved to another server, and back.
    assert not ranges(log, whole + stream(log, 500, 100) + stream(log, 1_100, 50)).is_shared


def test_a_cluster_takes_numbers_from_blocks() -> None:
    """Of one uuid: the numbers go back and forth, the places in the file don't."""
    assert ranges(GTIDS, [(n % 2 * 1_000_000 + n, 1, n, 0) for n in range(100)]).returns == 0
