"""Upstreams that delete what is old and compact what is superseded: on a broker that does both at once."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from schemas.errors import BackfillError, Code
from state.small_files import EmptyRanges
from state.storage import Storage
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.topics import Watermarks, watermarks
from streaming.source.upstream_checks import refuse_compacted
from tests.kit.folded import folded
from tests.kit.kafka_topics import remove_beginning, set_topic
from tests.kit.real import SetUp, Stage, await_condition, records
from tests.kit.real_upstream import UpsertUpstream

HOUR_MS = 3_600_000
ROLLS = b'{"id":10000}'
"""The key of no row."""
SOON = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.cleaner.backoff.ms": "200",
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that looks for old segments, and for superseded records, several times a second."""
    log = tmp_path_factory.mktemp("kafka") / "kafka.log"
    with EmbeddedBroker(log=log, settings=SOON) as broker:
        yield broker.bootstrap


def row(number: int, version: int = 0) -> tuple[Any, ...]:
    return (number, "EU", Decimal(number), f"n{version}")


def describe(stage: Stage, **settings: str) -> None:
    """Set the upstream's settings; `_` for `.` in their names."""
    set_topic(
        stage.upstream.kafka,
        stage.upstream.name,
        {name.replace("_", "."): value for name, value in settings.items()},
    )


def marks(stage: Stage) -> tuple[Watermarks, ...]:
    return watermarks(stage.upstream.kafka, stage.upstream.name)


def test_what_was_read_may_go_and_what_was_not_is_missed(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"}, beside=True)
    upstream = stage.upstream
    upstream.age_ms = 2 * HOUR_MS
    for number in range(400):
        upstream.put(row(number))
    with stage.running() as run:
        stage.finish(run, "copy")
        describe(stage, retention_ms=str(HOUR_MS))
        await_condition(lambda: all(each.earliest == each.high > 0 for each in marks(stage)), "retention")
        upstream.age_ms = 0
        upstream.put(row(7, 1))
        run.reach(upstream.barrier())
    upstream.delete(9)
    upstream.put(row(8, 1))
    stage.add_job("later")  # reads all rows, none of which is in the topic any more
    with stage.running() as run:
        stage.finish(run, "later")
    for number in (0, 1):
        assert folded(stage, number=number) == upstream.rows

    whole = stage.fails(BackfillError, Code.DATA_LOST, f"{upstream.name}-0@0", state="anew", jobs=[])
    begin = marks(stage)[0].earliest
    assert whole.found == f"a partition without its records 0 to {begin - 1}"

    known = marks(stage)[0].high
    for number in range(1_000, 1_010):
        upstream.put(row(number))
    upstream.flush()
    remove_beginning(upstream.kafka.bootstrap, upstream.name, known + 2)
    upstream.barrier()
    lost = stage.fails(BackfillError, Code.DATA_LOST, f"{upstream.name}-0@{known}")
    assert lost.found.startswith(f"a partition without its offsets {known} to {known + 1};")


def test_an_idle_topic_that_retention_empties_has_lost_nothing_also_after_a_restart(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    upstream = stage.upstream
    for number in range(40):
        upstream.put(row(number))
    with stage.running() as run:
        stage.finish(run, "copy")
        becomes_empty(stage)
        upstream.put(row(1, 1))
        run.reach(upstream.barrier())
        becomes_empty(stage)
    upstream.put(row(2, 1))
    with stage.running() as run:
        run.reach(upstream.barrier())
    assert folded(stage) == upstream.rows


def becomes_empty(stage: Stage) -> None:
    """Wait until the service has seen that nothing is behind its position, and have retention take all there is."""
    ends = [each.high for each in marks(stage)]
    ranges = EmptyRanges(Storage(str(stage.folder / "state")))
    await_condition(
        lambda: [each.end for each in ranges.read().values()] == ends, "a look behind the position"
    )
    for partition in range(len(ends)):
        remove_beginning(stage.upstream.kafka.bootstrap, stage.upstream.name, -1, partition=partition)


def test_a_topic_that_is_compacted_before_and_between_is_read_as_what_is_left(set_up: SetUp) -> None:
    stage = set_up({"name": "copy", "rate_limit": 300}, upstream_type=UpsertUpstream)
    upstream = stage.upstream
    describe(
        stage,
        cleanup_policy="compact",
        min_compaction_lag_ms=str(HOUR_MS),
        min_cleanable_dirty_ratio="0.01",
        segment_ms="100",
    )
    refuse_compacted(upstream.kafka, upstream.name, stage.config().upstream_format)
    upstream.age_ms = 3 * HOUR_MS
    for version in range(3):
        for number in range(300):
            upstream.put(row(number, version))
    is_compacted(stage)
    with stage.running() as run:
        run.reach(upstream.barrier())
        run.reach(upstream.barrier())
    for number in range(0, 300, 7):
        upstream.put(row(number, 3))
    upstream.delete(5)
    upstream.barrier()
    for number in range(0, 300, 14):
        upstream.put(row(number, 4))
    is_compacted(stage)
    with stage.running() as run:
        stage.finish(run, "copy")
        run.reach(upstream.barrier())
    assert folded(stage) == upstream.rows
    with stage.running(state="anew", jobs=[{**stage.jobs[0], "output": f"{upstream.name}-anew"}]) as run:
        stage.finish(run, "copy")
    stage.jobs = [{**stage.jobs[0], "output": f"{upstream.name}-anew"}]
    assert folded(stage) == upstream.rows


def is_compacted(stage: Stage) -> None:
    """Wait until of each row that is in the topic now its last record alone is left."""
    upstream = stage.upstream
    upstream.flush()
    ends = [each.high for each in marks(stage)]
    upstream.age_ms -= 60_000

    def is_done() -> bool:
        # A record that is younger rolls the segment of those before it; one of now would keep those behind it.
        for partition in range(upstream.partitions):
            upstream.send(partition, ROLLS, None)
        keys = [
            message.key()
            for end, part in zip(ends, records(upstream.kafka, upstream.name), strict=True)
            for message in part
            if (message.offset() or 0) < end and message.key() != ROLLS
        ]
        return len(keys) == len(set(keys))

    await_condition(is_done, "compaction")
