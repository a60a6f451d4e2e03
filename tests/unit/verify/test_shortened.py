"""Topics that lack their oldest barriers are judged from the first one on that all of them have."""

from __future__ import annotations

import random

import pytest

from schemas.records import Op
from streaming.verify.checker import Checker
from streaming.verify.findings import Report, Rule
from streaming.verify.records.rows import op_of
from streaming.verify.sources.shortened import FoldedOutput, Shortened
from tests.kit.encoded_histories import Entries, ListSource, encoded, view_of
from tests.kit.histories import History, clean_history


def epochs(entries: Entries) -> list[int]:
    return [int(entry.barrier) for entry in entries[0] if entry.barrier is not None]


def judged(history: History, upstream: Entries, output: Entries, since: int) -> Report:
    view = view_of(history)
    return Checker(
        history.table,
        view,
        ("up", [Shortened(ListSource(part), since, lists=False) for part in upstream]),
        ("out", [FoldedOutput(Shortened(ListSource(part), since, lists=True), view) for part in output]),
    ).run()


SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_that_keeps_the_law_keeps_it_from_any_barrier_on(seed: int) -> None:
    history = clean_history(random.Random(seed))
    upstream, output = encoded(history)
    for since in epochs(output):
        report = judged(history, upstream, output, since)
        assert report.clean, report.findings[:2]
        assert report.start == since


def test_a_change_that_an_early_interval_lost_is_found() -> None:
    """The last one of a key before the barrier, by which its row is there or not."""
    tried = 0
    for seed in SEEDS:
        history = clean_history(random.Random(seed))
        upstream, output = encoded(history)
        since = epochs(output)[-1]
        for part in output:
            changes = [place for place, entry in enumerate(part) if entry.barrier is None]
            if not changes or op_of(part[changes[-1]].value or b"") is Op.UPDATE:
                continue
            lost = part.pop(changes[-1])
            rules = {finding.rule for finding in judged(history, upstream, output, since).findings}
            assert rules & {Rule.LOST, Rule.EXTRA, Rule.DIFFERENT, Rule.CHANGED}, seed
            part.insert(changes[-1], lost)
            tried += 1
    assert tried > 8
