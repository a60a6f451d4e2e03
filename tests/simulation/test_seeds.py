"""Random histories: crashes, rivals, lost answers, doubled tasks. The law holds at the end of each."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import failed
from tests.simulation.histories import play

SEEDS = 2_000
CHUNK = 200


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_law_holds_at_the_end_of_every_history(first: int) -> None:
    broken = [failed(verdict) for verdict in map(play, range(first, first + CHUNK)) if verdict.complaints]
    assert not broken, "\n".join(broken)


def test_a_seed_is_a_history_bit_by_bit() -> None:
    for seed in range(5):
        assert play(seed).trace == play(seed).trace
    assert len({play(seed).digest for seed in range(5)}) == 5
