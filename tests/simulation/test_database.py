"""The simulated database and its connector have what a start from them is to be tried with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest

from schemas.position import Key
from schemas.records import Op, Row
from state.columns import OFFSET, OP, PARTITION, TRANSACTION
from state.values.chunks import widened
from tests.kit.avro_codec import ChangeCodec
from tests.simulation.beside import BesideChangelog
from tests.simulation.connector import FromConnector, Place
from tests.simulation.database import DatabaseUpstream, Timeline, table_of_database
from tests.simulation.initial import MemorySource

SEEDS = range(25)


@dataclass(frozen=True)
class Written:
    upstream: DatabaseUpstream
    changelog: BesideChangelog

    @property
    def timeline(self) -> Timeline:
        return self.upstream.timeline

    def places(self) -> Iterator[Place]:
        """Of the changes, in the order of each partition, those before the reading too."""
        for number, entries in enumerate(self.changelog.records):
            yield from ((number, entry.offset) for entry in entries if entry.barrier is None)


def written(seed: int) -> Written:
    upstream = DatabaseUpstream(table_of_database(3), 2, Random(seed))
    upstream.live(40)
    upstream.begin()
    for _ in range(4):
        upstream.live(30)
        upstream.barrier()
    upstream.settle()
    upstream.barrier()
    initial = MemorySource(upstream.begins, upstream.content)
    return Written(upstream, BesideChangelog(upstream, frozenset(), FromConnector(), initial=initial))


def _fold(changelog: BesideChangelog, rows: dict[Key, Row], number: int, ends: range) -> None:
    codec = ChangeCodec(changelog.table.columns)
    for entry in changelog.records[number]:
        if entry.offset in ends and entry.barrier is None and (number, entry.offset) not in changelog.extra:
            change = codec.decode(entry.value or b"")
            key = changelog.table.key_of(change.row)
            assert rows.pop(key, None) == change.before
            if change.after is not None:
                rows[key] = change.after


@pytest.mark.parametrize("seed", SEEDS)
def test_the_initial_table_and_the_events_behind_it_make_the_table_of_the_database(seed: int) -> None:
    made = written(seed)
    rows = {row[:1]: row for row in made.upstream.content}
    for number, first in enumerate(made.upstream.begins):
        _fold(made.changelog, rows, number, range(first, 1 << 40))
    assert rows == made.timeline.moments[-1].rows


@pytest.mark.parametrize("seed", SEEDS)
def test_the_topic_is_read_from_before_every_event_that_the_first_snapshot_does_not_see(seed: int) -> None:
    made = written(seed)
    first = made.timeline.moments[0].snapshot
    for place in made.places():
        if place[1] < made.upstream.begins[place[0]] and place in made.upstream.transactions:
            assert first.sees(widened(made.upstream.transactions[place], first))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_slot_has_confirmed_lies_before_the_ends_of_that_moment(seed: int) -> None:
    """Each event of it once, and no more of it to come."""
    made = written(seed)
    commits, transactions = made.upstream.commits, made.upstream.transactions
    for moment in made.timeline.moments:
        later = [place for place in transactions if place[1] >= moment.ends[place[0]]]
        assert all(commits[transactions[place]] > moment.confirmed_lsn for place in later)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_snapshot_sees_is_committed_before_the_end_of_the_log(seed: int) -> None:
    made = written(seed)
    for moment in made.timeline.moments:
        for number, lsn in made.upstream.commits.items():
            seen = moment.snapshot.sees(widened(number, moment.snapshot))
            assert not seen or lsn <= moment.written_lsn


def test_histories_have_what_they_are_for() -> None:
    found = Counter[str]()
    for seed in SEEDS:
        made = written(seed)
        found.update(_oddities(made))
    assert all(found[oddity] > 10 for oddity in ODDITIES), found


ODDITIES = (
    "an event is in the topic before its commit is seen",
    "an LSN goes back",
    "a transaction number goes back",
    "an event comes again",
    "a value is left out",
    "a key changes",
    "a row is deleted",
)


def _oddities(made: Written) -> Iterator[str]:
    upstream = made.upstream
    early, back, older, again, left_out, moved, deleted = ODDITIES
    for moment in made.timeline.moments:
        for place, number in upstream.transactions.items():
            is_there = upstream.begins[place[0]] <= place[1] < moment.ends[place[0]]
            if is_there and not moment.snapshot.sees(widened(number, moment.snapshot)):
                yield early
    own = [place for place in made.places() if place in upstream.positions and place not in upstream.extra]
    for before, place in pairwise(own):
        if before[0] == place[0]:
            # Of (commit, LSN), the second.
            lsns = [(upstream.positions[each].position or (0, 0))[1] for each in (before, place)]
            numbers = (
                widened(upstream.transactions[each], made.timeline.moments[0].snapshot)
                for each in (before, place)
            )
            yield from [back] * (lsns[0] > lsns[1])
            yield from [older] * (next(numbers) > next(numbers))
    yield from [again] * len(upstream.extra & upstream.positions.keys())
    yield from [left_out] * len(upstream.without)
    at_once = Counter(upstream.positions[place] for place in own)
    yield from [moved] * sum(count > 1 for count in at_once.values())
    ops = made.changelog.rows[OP].to_pylist()
    yield from [deleted] * ops.count(Op.DELETE.value)


def test_lanes_get_the_numbers_of_transactions() -> None:
    made = written(0)
    rows = made.changelog.rows
    places = zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True)
    known = dict(zip(places, rows[TRANSACTION].to_pylist(), strict=True))
    assert {
        place: number for place, number in known.items() if number is not None
    } == made.upstream.transactions
