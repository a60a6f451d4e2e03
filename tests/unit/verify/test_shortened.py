"""Outputs that begin late: topics that lack their oldest barriers, and jobs that begin now."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from streaming.verify.checker import Checker
from streaming.verify.findings import Report, Rule
from streaming.verify.sources import FoldedOutput, Shortened
from tests.kit.encoded_histories import Entries, ListSource, encoded, judge, of_changes, view_of
from tests.kit.histories import History, Item, clean_history


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


SEEDS_OF_NOW = range(60)


def _start(history: History) -> int:
    barrier = history.output[0][0].barrier
    assert barrier is not None
    return barrier.curr


def _sends_a_row_from_before(history: History) -> bool:
    """One that was there at the start, behind the start barrier, as a job that begins at the beginning does it."""
    table = dict(history.tables())[_start(history)]
    items = [item for key in sorted(table, key=repr) for item in history.items(key, None, table[key])]
    if not items or len(history.output[0]) < 2:
        return False
    history.output[history.home(items[0].key or ())].insert(1, items[0])
    return True


def _loses_a_change(history: History) -> bool:
    for items in history.output:
        place = next((number for number, item in enumerate(items) if item.barrier is None), None)
        if place is not None:
            items.pop(place)
            return True
    return False


def _starts_unfinished(history: History) -> bool:
    first = history.output[-1][0]
    assert first.barrier is not None
    history.output[-1][0] = Item(barrier=replace(first.barrier, progress=first.barrier.progress[1:]))
    return bool(first.barrier.progress)


@pytest.mark.parametrize(
    ("tamper", "rules"),
    [
        (_sends_a_row_from_before, {Rule.EXTRA, Rule.DIFFERENT}),
        (_loses_a_change, {Rule.LOST, Rule.DIFFERENT}),
        (_starts_unfinished, {Rule.PROGRESS_INVALID}),
    ],
)
def test_what_it_may_not_do_is_found(tamper: Callable[[History], bool], rules: set[Rule]) -> None:
    tried = 0
    for seed in SEEDS_OF_NOW:
        history = clean_history(random.Random(seed), from_now=True)
        if tamper(history):
            tried += 1
            assert {finding.rule for finding in judge(history).findings} & rules, seed
    assert tried > 10


def test_an_ordinary_output_is_none_of_a_job_that_begins_now_nor_the_other_way_round() -> None:
    for from_now in (False, True):
        broken = [clean_history(random.Random(seed), from_now=from_now) for seed in SEEDS_OF_NOW]
        for history in broken:
            history.from_now = not from_now
        assert sum(not judge(history).clean for history in broken) > len(broken) / 2


def test_it_is_judged_from_any_barrier_on_where_the_oldest_ones_were_deleted() -> None:
    for seed in SEEDS_OF_NOW[::3]:
        history = clean_history(random.Random(seed), from_now=True)
        view = view_of(history)
        upstream, output = encoded(history)
        for since in [int(entry.barrier) for entry in output[0] if entry.barrier is not None]:
            shortened = [Shortened(ListSource(part), since, lists=True) for part in output]
            sources = [FoldedOutput(each, view) for each in of_changes(view, *shortened)]
            later = [Shortened(ListSource(part), since, lists=False) for part in upstream]
            report = Checker(
                history.table,
                view,
                ("up", of_changes(history.table, *later)),
                ("out", sources),
                from_now=True,
            ).run(require_complete=True)
            assert report.clean, (seed, since, report.findings[:2])
