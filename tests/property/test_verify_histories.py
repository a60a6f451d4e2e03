"""The judge against thousands of random histories: silent on clean ones, never silent on broken ones."""

from __future__ import annotations

import random

import pytest

from streaming.verify.findings import Side
from tests.kit.encoded_histories import judge
from tests.kit.examples import examples, is_quick
from tests.kit.histories import clean_history
from tests.kit.mutants import MUTANTS, folds_to_the_law

CLEAN_SEEDS = examples(1_000)
SEEDS_OF_A_MUTANT = 150
FEWEST_APPLIED = 10


@pytest.mark.slow
def test_nothing_is_found_in_a_clean_history() -> None:
    records = 0
    for seed in range(CLEAN_SEEDS):
        report = judge(clean_history(random.Random(seed)))
        assert report.clean, f"seed {seed}: {report.findings}"
        records += report.output_records
    assert records > 10 * CLEAN_SEEDS, "histories too small to mean anything"


@pytest.mark.parametrize("seed", range(examples(200)))
def test_nothing_is_found_where_a_job_begins_now(seed: int) -> None:
    report = judge(clean_history(random.Random(seed), from_now=True))
    assert report.clean, report.findings
    assert (report.snapshot_rows, report.vnodes_finished) == (0, report.vnode_count)


def test_a_clean_history_folds_to_the_law_at_every_barrier() -> None:
    for seed in range(CLEAN_SEEDS // 4):
        assert folds_to_the_law(clean_history(random.Random(seed))), f"seed {seed}"


@pytest.mark.parametrize("name", MUTANTS)
def test_every_broken_history_is_caught_and_named(name: str) -> None:
    tamper, rules = MUTANTS[name]
    applied = 0
    for seed in range(SEEDS_OF_A_MUTANT):
        rng = random.Random(seed)
        history = clean_history(rng)
        if not tamper(history, rng):
            continue
        applied += 1
        report = judge(history)
        named = {key.partition(".")[2] for key in report.counts if key.startswith(Side.OUTPUT)}
        assert named, f"seed {seed} was not caught"
        assert rules is None or named & rules, f"seed {seed} was called {named}"
        if is_quick() and applied == FEWEST_APPLIED:
            break
    assert applied >= FEWEST_APPLIED, f"only {applied} histories could be broken so"


def test_a_history_cut_at_any_barrier_of_the_output_is_clean() -> None:
    """An output that is behind, or was dropped, ends with the same barrier everywhere and is no fault."""
    for seed in range(examples(200)):
        history = clean_history(random.Random(seed))
        epochs = [item.barrier.curr for item in history.output[0] if item.barrier is not None]
        last = random.Random(seed).choice(epochs)
        for items in history.output:
            end = next(
                i for i, item in enumerate(items) if item.barrier is not None and item.barrier.curr == last
            )
            del items[end + 1 :]
        report = judge(history)
        assert report.clean, f"seed {seed}: {report.findings}"
        assert report.last == last
        assert report.behind == sum(step.barrier.curr > last for step in history.steps)
