"""Records of a batch judged in their order: what may begin a log anew, and what stops the service."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence, Set
from typing import cast

import pytest

from schemas.codec.logs import LogId, LogPosition, Position
from schemas.errors import Code, InputError
from schemas.formats.protocol import Format
from schemas.formats.registry import DEFAULT
from schemas.records import Barrier, BarrierKind, Op, RecordId
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from state.values.seen import Mark, Seen
from streaming.core.log_ranges import LogRanges
from streaming.core.redelivery import Judgement, Logged, Why
from streaming.protocol.lanes.redelivery import LogResets, Ranges, RedeliveryJudge
from streaming.source.direct_read import LoggedRecords

LOG = LogId("postgresql", "shop", "shop")
SHARD = LogId("postgresql", "shard", "shard")
GTIDS = LogId("mysql", "shop", None, "uuid")
ROW = LogPosition(LOG)
BEFORE = {0: Seen({LOG: Mark((1000, 1), frozenset(), 50)}), 1: Seen({LOG: Mark((900, 1), frozenset(), 50)})}

Record = tuple[int, LogPosition | None]
"""Partition and position; keys are all different."""


def at(number: int, ts_ms: int | None, log: LogId = LOG) -> LogPosition:
    return LogPosition(log, (number,) + (1,) * (log.width - 1), ts_ms)


class Topic:
    """Records in two partitions, behind each other."""

    def __init__(self, *intervals: Sequence[Record]) -> None:
        self.records, self.ends = list[Logged](), list[tuple[int, ...]]()
        ends = [0, 0]
        for interval in intervals:
            for partition, position in interval:
                key = f"{partition} {ends[partition]}".encode()
                self.records.append(Logged(partition, ends[partition], key, Op.INSERT, position))
                ends[partition] += 1
            self.ends.append((ends[0], ends[1]))

    def read(self, ranges: Ranges, format_: Format, skipped: Set[RecordId], epoch: int) -> Iterator[Logged]:
        for each in self.records:
            first, end = ranges.get(each.partition, (0, 0))
            if first <= each.offset < end and (each.partition, each.offset) not in skipped:
                yield each

    def plan(self, until: tuple[int, ...] | None = None, skipped: Sequence[RecordId] = ()) -> BatchPlan:
        barriers = [
            AlignedBarrier(Barrier(n + 1, n, BarrierKind.BARRIER, 2, 0), ends, in_data=False)
            for n, ends in enumerate(self.ends)
        ]
        return BatchPlan(
            None,
            tuple(barriers),
            (0, 0),
            ReplicaVersion(0, 0, 0),
            4,
            skipped=tuple(skipped),
            until=until,
            seen=BEFORE,
        )

    def judged(self, resets: LogResets | None = None, **plan: object) -> Judgement:
        judge = RedeliveryJudge("t", cast("LoggedRecords", self), resets or LogResets())
        return judge.judgement(self.plan(**plan), DEFAULT)  # type: ignore[arg-type]

    def refused(self, resets: LogResets | None = None, **plan: object) -> str:
        with pytest.raises(InputError) as caught:
            self.judged(resets, **plan)
        assert caught.value.code is Code.LOG_WENT_BACK
        return str(caught.value.where)


def whys(judgement: Judgement) -> list[tuple[int, int, Why | None]]:
    return [(fall.partition, fall.offset, fall.why) for fall in judgement.falls]


def test_a_lower_position_is_redelivered_unless_it_is_later() -> None:
    found = Topic(
        [(0, at(999, 50)), (0, at(998, None)), (0, at(1001, 40)), (0, None), (0, at(999, 50))]
    ).judged()
    assert found.dropped == {0: [(0, 1), (4, 4)]}
    assert [(run.count, run.first[0], run.last[0]) for run in found.runs] == [(2, 999, 998), (1, 999, 999)]
    assert found.falls == []
    assert found.seen[0].mark(LOG).latest_ms == 50
    assert Topic([(0, at(999, 51))]).refused() == "t-0@0"


def test_nothing_is_known_of_another_log() -> None:
    found = Topic([(0, at(5, 1, SHARD)), (0, at(6, 1, SHARD)), (1, at(901, 1))]).judged()
    assert (found.dropped, found.falls) == ({}, [])


def test_with_gtids_a_log_that_begins_anew_is_taken_and_reported() -> None:
    topic = Topic(
        [(0, at(70, 60, GTIDS)), (0, LogPosition(GTIDS, (60, 0, 0, 0), 61)), (0, at(61, 60, GTIDS))]
    )
    assert whys(topic.judged()) == [(0, 1, Why.GTIDS)]
    # Both have to be lower: a replica has the numbers at places of its own.
    topic = Topic([(0, at(70, 60, GTIDS)), (0, at(60, 61, GTIDS)), (0, at(60, 60, GTIDS))])
    assert (topic.judged().falls, topic.judged().dropped) == ([], {})


def test_a_row_of_a_snapshot_lets_logs_begin_anew_in_its_interval_whatever_its_partition() -> None:
    for topic in (
        Topic([(0, at(10, 60)), (1, ROW)]),
        Topic([(1, ROW)], [(0, at(10, 60))]),
        Topic([(1, ROW)], [], [(0, at(10, 60))]),
    ):
        found = topic.judged()
        assert (whys(found), found.snapshots) == (
            [] if len(topic.ends) > 1 else [(0, 0, Why.SNAPSHOT)],
            [LOG],
        )
    assert Topic([(1, LogPosition(SHARD)), (0, at(10, 60))]).refused() == "t-0@0"


def test_behind_a_snapshot_only_the_first_record_may_fall() -> None:
    old_tail = [(0, at(1001, 51)), (1, ROW)]
    assert whys(Topic(old_tail, [(0, at(10, 60)), (0, at(11, 55))]).judged()) == [(0, 1, Why.SNAPSHOT)]
    assert Topic(old_tail, [(0, at(1002, 52)), (0, at(10, 60))]).refused() == "t-0@2"
    # One that is dropped is not the first.
    found = Topic(old_tail, [(0, at(1000, 50)), (0, at(10, 60))]).judged()
    assert (found.dropped, whys(found)) == ({0: [(1, 1)]}, [(0, 2, Why.SNAPSHOT)])


def test_a_part_of_an_interval_is_judged_by_the_rows_of_snapshots_in_the_rest() -> None:
    topic = Topic([(0, at(10, 60)), (0, at(11, 61)), (1, ROW)], [])
    topic.ends = topic.ends[:1]
    assert whys(topic.judged(until=(1, 0))) == [(0, 0, Why.SNAPSHOT)]
    assert topic.judged(until=(2, 1)).seen[1].snapshots == {LOG}
    assert Topic([(0, at(10, 60)), (0, at(11, 61))]).refused(until=(1, 0)) == "t-0@0"


def test_the_operator_s_word_holds_always_or_once_for_a_log_in_each_partition() -> None:
    twice = Topic([(0, at(10, 60)), (1, at(10, 60)), (0, at(5, 70))])
    assert len(twice.judged(LogResets(accepts=True)).falls) == 3
    once = LogResets(times=1)
    assert twice.refused(once) == "t-0@1"
    assert Topic([(0, at(10, 60)), (1, at(10, 60))]).judged(once).falls  # the same records, judged again
    assert whys(Topic([(0, at(10, 60))], [(0, at(11, 55)), (0, at(3, 50))]).judged(once))
    assert twice.judged(skipped=[(0, 0), (0, 1), (1, 0)]).falls == []


def test_at_the_highest_position_the_same_key_and_op_is_redelivered() -> None:
    topic = Topic([(0, at(1001, 60)), (0, at(1001, 60))])
    assert topic.judged().dropped == {}
    topic.records[1] = topic.records[1]._replace(key=topic.records[0].key)
    assert topic.judged().dropped == {0: [(1, 1)]}
    topic.records[1] = topic.records[1]._replace(op=Op.DELETE)
    assert topic.judged().dropped == {}


def test_the_tombstone_of_a_delete_that_was_dropped_is_dropped() -> None:
    topic = Topic([(0, at(999, 50)), (0, None), (0, None)])
    topic.records = [each._replace(key=b"k", op=Op.DELETE) for each in topic.records]
    assert topic.judged().dropped == {0: [(0, 1)]}
    topic = Topic([(0, at(999, 50))])
    topic.records = [each._replace(key=b"k", op=Op.DELETE) for each in topic.records]
    assert topic.judged().seen[0].dropped is not None


POSTGRESQL = LogId("postgresql", "shop", "shop")
FILES = LogId("mysql", "shop", None, 1)
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
