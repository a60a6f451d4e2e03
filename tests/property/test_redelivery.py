"""Histories of servers: nothing new is dropped, redelivered records are dropped where the rule can know it.

The lanes see their own keys, batches are cut at random, and so are the parts of long intervals. What they drop is what
one reader of whole partitions drops, record by record, and what really came again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from schemas.codec.logs import LogId, Position
from schemas.errors import InputError
from schemas.formats.outputs.records import AvroRowEncoder
from schemas.formats.protocol import Format
from schemas.formats.registry import DEFAULT
from schemas.records import Barrier, BarrierKind, RecordId
from state.columns import OFFSET, PARTITION
from state.values import seen as seen_module
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from state.values.seen import LaneMark, LaneSeen, Seen, merged
from streaming.core.redelivery import Judgement, Logged, Redelivery
from streaming.lane.redelivered import RedeliveryFilter
from streaming.lane.task import UndoneError
from streaming.protocol.lanes.redelivery import LogResets, Ranges, RedeliveryJudge
from streaming.source.decoded import POSITION, Changes
from streaming.source.direct_read import LoggedRecords
from streaming.verify.records.order import RedeliveryRule
from tests.kit import server_histories as servers
from tests.kit.log_positions import position_column
from tests.kit.server_logs import PARTITIONS, Sent
from tests.kit.service_reading import place_of
from tests.kit.tables import table
from tests.kit.values import examples

TABLE = table()
KEYS = AvroRowEncoder(TABLE.key_columns)
LANES = 4

Placed = tuple[int, int, Sent]
"""Partition, offset, record."""


@dataclass
class Topic:
    """Records with their offsets, by interval."""

    intervals: list[list[Placed]]
    ends: list[tuple[int, ...]]

    @classmethod
    def of(cls, intervals: Sequence[Sequence[Sent]]) -> Topic:
        ends, found, placed = [0] * PARTITIONS, list[tuple[int, ...]](), list[list[Placed]]()
        for interval in intervals:
            mine = list[Placed]()
            for sent in interval:
                mine.append((sent.partition, ends[sent.partition], sent))
                ends[sent.partition] += 1
            placed.append(mine)
            found.append(tuple(ends))
        return cls(placed, found)

    @cached_property
    def records(self) -> dict[RecordId, Sent]:
        return dict(
            sorted(
                (((p, o), sent) for interval in self.intervals for p, o, sent in interval),
                key=lambda item: item[0],
            )
        )

    def read(self, ranges: Ranges, format_: Format, skipped: Set[RecordId], epoch: int) -> Iterator[Logged]:
        for (partition, offset), sent in self.records.items():
            first, end = ranges.get(partition, (0, 0))
            if first <= offset < end:
                yield Logged(partition, offset, key_of(sent), sent.op, sent.position)


@cache
def _key(key: int) -> bytes:
    return bytes(KEYS([pa.array([key], pa.int64())])[0].as_py())


def key_of(sent: Sent) -> bytes:
    return _key(sent.key)


def by_one_reader(topic: Topic) -> set[RecordId]:
    """Records that a reader of whole partitions drops."""
    readers, dropped = [RedeliveryRule() for _ in range(PARTITIONS)], set[RecordId]()
    for interval in topic.intervals:
        for partition, offset, sent in sorted(interval, key=lambda each: each[:2]):
            if readers[partition].drops(sent.key, sent.op, place_of(sent.position)):
                dropped.add((partition, offset))
        rows = set().union(*(reader.snapshots for reader in readers))
        for reader in readers:
            reader.end_interval(rows)
    return dropped


@dataclass
class Service:
    """Lanes over batches of a topic; `chance` cuts batches and parts."""

    topic: Topic
    chance: random.Random
    resets: LogResets
    lanes: int = LANES
    seen: dict[int, Seen] = field(default_factory=dict)
    dropped: set[RecordId] = field(default_factory=set)
    judged: int = 0
    position: tuple[int, ...] = (0,) * PARTITIONS

    def run(self) -> set[RecordId]:
        number = 0
        while number < len(self.topic.intervals):
            while self.chance.random() < 0.15:
                self._part(number)
            count = self.chance.randint(1, min(3, len(self.topic.intervals) - number))
            self._batch(range(number, number + count), None)
            number += count
        return self.dropped

    def _part(self, number: int) -> None:
        ends = self.topic.ends[number]
        until = tuple(self.chance.randint(start, end) for start, end in zip(self.position, ends, strict=True))
        self._batch(range(number, number + 1), until)

    def _batch(self, numbers: range, until: tuple[int, ...] | None) -> None:
        barriers = [AlignedBarrier(_barrier(n), self.topic.ends[n], in_data=False) for n in numbers]
        replica = ReplicaVersion(0, 0, 0)
        plan = BatchPlan(
            None, tuple(barriers), self.position, replica, self.lanes, until=until, seen=_stored(self.seen)
        )
        judgement = None
        without = self._lanes(plan, judgement)
        if any(each is None for each in without):
            self.judged += 1
            judgement = RedeliveryJudge("t", cast("LoggedRecords", self.topic), self.resets).judgement(
                plan, DEFAULT
            )
            found = self._lanes(plan, judgement)
            # A lane may have sent its part before another one asked.
            for before, after in zip(without, found, strict=True):
                assert after is not None
                assert before is None or before[0] == after[0] == set()
        else:
            found = without
        results = [each for each in found if each is not None]
        self.dropped |= set().union(*(each[0] for each in results))
        closed = 0 if until is not None else len(barriers)
        self.seen = merged(plan.seen, (each[1] for each in results), closed)
        self.position = plan.end_offsets

    def _lanes(
        self, plan: BatchPlan, judgement: Judgement | None
    ) -> list[tuple[set[RecordId], Mapping[int, LaneSeen]] | None]:
        records = [
            (partition, offset, sent)
            for (partition, offset), sent in self.topic.records.items()
            if plan.first_offsets[partition] <= offset < plan.end_offsets[partition]
        ]
        return [
            self._lane(plan, [each for each in records if each[2].key % self.lanes == lane], judgement)
            for lane in range(self.lanes)
        ]

    def _lane(
        self, plan: BatchPlan, records: list[Placed], judgement: Judgement | None
    ) -> tuple[set[RecordId], Mapping[int, LaneSeen]] | None:
        redelivered, dropped = RedeliveryFilter(plan.seen, judgement), set[RecordId]()
        ends = [barrier.ends for barrier in plan.barriers]

        def interval(placed: Placed) -> int:
            return sum(each[placed[0]] <= placed[1] for each in ends)

        records = sorted(records, key=lambda each: (interval(each), *each[:2]))
        while records:
            size = self.chance.randint(1, len(records))
            part, records = records[:size], records[size:]
            changes = changes_of(part, [interval(each) for each in part])
            try:
                kept = redelivered(changes, changes.encoded_keys(KEYS))
            except UndoneError:
                return None
            left = set(zip(kept.partitions.tolist(), kept.offsets.tolist(), strict=True))
            dropped |= {(p, o) for p, o, _ in part} - left
        assert redelivered.count == len(dropped)
        return dropped, redelivered.seen


def _stored(seen: Mapping[int, Seen]) -> dict[int, Seen]:
    """Positions as the journal gives them back."""
    stored = {number: Seen.from_list(each.to_list()) for number, each in seen.items()}
    assert stored == seen
    return stored


def _barrier(number: int) -> Barrier:
    return Barrier((number + 1) << 16, number << 16, BarrierKind.BARRIER, PARTITIONS, 0)


def changes_of(found: Sequence[Placed], intervals: Sequence[int]) -> Changes:
    nothing = tuple(pa.nulls(len(found), column.type.arrow) for column in TABLE.columns)
    rows = {
        PARTITION: pa.array([each[0] for each in found], pa.int32()),
        OFFSET: pa.array([each[1] for each in found], pa.int64()),
        POSITION: position_column(sent.position for *_, sent in found),
    }
    return Changes(
        interval=np.array(intervals, np.int64),
        vnodes=np.zeros(len(found), np.int32),
        ops=np.array([sent.op for *_, sent in found], np.int8),
        before=nothing,
        after=nothing,
        keys=(pa.array([sent.key for *_, sent in found], pa.int64()),),
        rows=pa.table(rows),
    )


def missed(topic: Topic, dropped: set[RecordId]) -> list[RecordId]:
    """Redelivered records that were kept, but those that a rule can't know: GTIDs that are not below the highest."""
    found, highest = list[RecordId](), dict[object, tuple[int, ...]]()
    for place, sent in topic.records.items():
        where = sent.position
        if where is None or where.position is None:
            continue
        key = where.log, place[0]
        top = highest.get(key)
        is_below = top is not None and where.log.is_lower(where.position, top)
        if (
            not sent.is_new
            and sent.is_known
            and place not in dropped
            and (is_below or not where.log.has_gtids)
        ):
            found.append(place)
        if place not in dropped and (top is None or where.position > top or is_below):
            highest[key] = where.position
    return found


History = Callable[[random.Random, str], list[list[Sent]]]

HISTORIES: list[tuple[History, tuple[str, ...]]] = [
    (servers.one_server, servers.KINDS),
    (servers.several_databases, servers.KINDS),
    (servers.begun_anew, ("postgresql", "mysql", "mysql without GTIDs", "sqlserver")),
    (servers.new_snapshot, ("postgresql", "mysql", "mysql without GTIDs", "sqlserver")),
    (servers.replica_with_origins_numbers, ("mysql", "mariadb")),
    (servers.blocks_of_numbers, ("mysql",)),
]
CASES = [(history, kind) for history, kinds in HISTORIES for kind in kinds]


@dataclass
class Played:
    """A history, its judgement, and what is wrong with it."""

    dropped: int
    judged: int
    wrong: list[str]


def play(history: History, kind: str, seed: int, resets: LogResets | None = None) -> Played:
    """`resets`: the operator's word, by default to accept all."""
    topic = Topic.of(history(random.Random(f"{kind} {seed}"), kind))
    expected, records, wrong, judged = by_one_reader(topic), topic.records, list[str](), 0
    if any(records[place].is_new for place in expected):
        wrong.append("a reader of whole partitions drops what is new")
    for lanes in (LANES, 1):
        accepts = resets or LogResets(accepts=True)
        service = Service(topic, random.Random(seed), accepts, lanes)
        with capture_logs():
            found = service.run()
        if any(records[place].is_new for place in found):
            wrong.append(f"{lanes} lanes drop what is new")
        if found != expected:
            wrong.append(f"{lanes} lanes drop {sorted(found)}, and one reader {sorted(expected)}")
        judged += service.judged
    if again := missed(topic, expected):
        wrong.append(f"what came again is not dropped: {again}")
    return Played(len(expected), judged, wrong)


@pytest.mark.parametrize(("history", "kind"), CASES, ids=[f"{h.__name__}-{k}" for h, k in CASES])
def test_lanes_drop_what_came_again_and_nothing_new(history: History, kind: str) -> None:
    dropped = judged = 0
    # In fewer than three some kinds of server send hardly anything again.
    for seed in range(max(3, examples(8))):
        played = play(history, kind, seed)
        assert played.wrong == [], seed
        dropped += played.dropped
        judged += played.judged
    assert dropped > 10
    assert judged > 3


def _by_maximum(
    log: LogId, start: tuple[Position | None, frozenset[str]], found: Sequence[LaneMark]
) -> tuple[Position | None, frozenset[str]]:
    known = [(each.highest, each.at_highest) for each in found] + ([] if start[0] is None else [start])
    highest = max((position for position, _ in known if position is not None), default=None)
    return highest, frozenset[str]().union(*(at for position, at in known if position == highest))


CANARIES: dict[str, tuple[History, str, tuple[object, str, object]]] = {
    "lanes are merged by the highest position alone": (
        servers.begun_anew_between_lanes,
        "postgresql",
        (seen_module, "_highest", _by_maximum),
    ),
    "the rest of an interval is not looked through": (
        servers.new_snapshot,
        "postgresql",
        (Redelivery, "needs_consent", property(lambda self: False)),
    ),
    "a number of a GTID is lower by itself": (
        servers.blocks_of_numbers,
        "mysql",
        (LogId, "is_lower", lambda self, position, highest: position < highest),
    ),
}


@pytest.mark.parametrize("broken", CANARIES)
def test_a_rule_with_one_thing_broken_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history, kind, (place, name, wrong) = CANARIES[broken]
    assert not any(map(partial(is_wrong, history, kind), range(8)))
    monkeypatch.setattr(place, name, wrong)
    assert any(map(partial(is_wrong, history, kind), range(200)))


def is_wrong(history: History, kind: str, seed: int) -> bool:
    """This holds where the operator is asked as well, if a new snapshot is word enough."""
    try:
        return bool(play(history, kind, seed, LogResets(accepts=history is not servers.new_snapshot)).wrong)
    except InputError:
        return True
