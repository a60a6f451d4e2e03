"""Random histories: crashes, rivals, lost answers, doubled tasks. The law holds at the end of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.__main__ import failed, main
from tests.simulation.histories import play

SEEDS = 300
CHUNK = 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_law_holds_at_the_end_of_every_history(first: int) -> None:
    broken = [failed(verdict) for verdict in map(play, range(first, first + CHUNK)) if verdict.violations]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("seed", [25_457, 85_768, 87_027])
def test_nothing_is_wrong_with_an_instance_that_died_before_it_knew_of_its_successor(seed: int) -> None:
    assert play(seed).violations == [], (
        "it saw what its successor had written, and took the state for an old one"
    )


def test_a_failure_tells_the_command_that_shows_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = play(7)
    command, reason = failed(replace(verdict, violations=["a row is lost"])).splitlines()
    assert (command, reason.strip()) == ("make simulate SEED=7", "a row is lost")
    monkeypatch.setattr("sys.argv", ["simulate", "--seed", "7"])
    assert main() == 0
    shown = [*verdict.trace, f"digest {verdict.digest}", "the law holds"]
    assert capsys.readouterr().out.splitlines()[-len(shown) :] == shown


def test_a_seed_is_a_history_bit_by_bit() -> None:
    for seed in range(5):
        assert play(seed).trace == play(seed).trace
    assert len({play(seed).digest for seed in range(5)}) == 5


@pytest.mark.parametrize("seed", [11_502, 24_057])
def test_a_former_instance_that_is_late_with_its_letters_ends_nobody(seed: int) -> None:
    """Its producer fences that of its successor, which takes the next one. What a seed draws may change."""
    assert not play(seed).violations
