"""Topics that lack their oldest barriers are judged from the first one on that all of them have."""

from __future__ import annotations

import random

import pytest

from streaming.verify.checker import Checker
from streaming.verify.findings import Report, Rule
from streaming.verify.sources import FoldedOutput, Shortened
from tests.kit.encoded_histories import Entries, ListSource, encoded, of_changes, view_of
from tests.kit.histories import History, clean_history


def epochs(entries: Entries) -> list[int]:
    return [int(entry.barrier) for entry in entries[0] if entry.barrier is not None]


def judged(history: History, upstream: Entries, output: Entries, since: int) -> Report:
    view = view_of(history)
    shortened = [Shortened(ListSource(part), since, lists=True) for part in output]
    return Checker(
        history.table,
        view,
        (
            "up",
            of_changes(
                history.table, *(Shortened(ListSource(part), since, lists=False) for part in upstream)
            ),
        ),
        ("out", [FoldedOutput(each, view) for each in of_changes(view, *shortened)]),
    ).run()


SEEDS = range(24)
UPDATE = b"\x02"
"""The first byte of such a change."""


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
            if not changes or (part[changes[-1]].value or b"")[:1] == UPDATE:
                continue
            lost = part.pop(changes[-1])
            rules = {finding.rule for finding in judged(history, upstream, output, since).findings}
            assert rules & {Rule.LOST, Rule.EXTRA, Rule.DIFFERENT, Rule.CHANGED}, seed
            part.insert(changes[-1], lost)
            tried += 1
    assert tried > 8
