"""Short batches are read by their lanes, others by Spark, and what comes out is the same in any mixture of the two."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from schemas.position import Key
from schemas.records import Change, Throttle
from streaming.source.kafka import UpstreamSource
from tests.kit.debezium import DebeziumUpstream
from tests.kit.real import SetUp
from tests.kit.real_upstream import RealUpstream, UpsertUpstream, json_of

JOBS = {"name": "copy", "rate_limit": 100}, {"name": "some", "columns": ["id", "note"], "filter": "id < 400"}
LOG = {"name": "log", "read": "topic", "rate_limit": 100, "output_partitions": None}
BY_SPARK = {"limits": {"short_records": 0}}


class SortedUpserts(UpsertUpstream):
    """Rows with their columns in another order than the table's, which is legal."""

    def _append(self, key: Key, change: Change) -> None:
        row = None if change.after is None else dict(zip(self.table.column_names, change.after, strict=True))
        value = None if row is None else json_of(dict(sorted(row.items(), reverse=True)))
        data = json_of(dict(zip(self.table.primary_key, key, strict=True)))
        self._produce(value, data, zlib.crc32(data) % self.partitions)


@pytest.fixture
def by_spark(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each batch that Spark exchanges."""
    calls: list[int] = []
    exchanged = UpstreamSource.exchanged

    def counted(self: UpstreamSource, *how: Any, **more: Any) -> Any:
        calls.append(len(calls))
        return exchanged(self, *how, **more)

    monkeypatch.setattr(UpstreamSource, "exchanged", counted)
    return calls


@pytest.mark.parametrize(
    ("jobs", "upstream_type"),
    [
        pytest.param(JOBS, RealUpstream, id="changes", marks=pytest.mark.thorough),
        pytest.param((*JOBS, LOG), RealUpstream, id="changes and records"),
        pytest.param(JOBS, UpsertUpstream, id="rows by key"),
        pytest.param(JOBS, DebeziumUpstream, id="events"),
    ],
)
def test_a_backfill_is_the_same_however_its_batches_are_read(
    set_up: SetUp, by_spark: list[int], jobs: tuple[dict[str, Any], ...], upstream_type: type[RealUpstream]
) -> None:
    stage = set_up(*jobs, upstream_type=upstream_type)
    upstream = stage.upstream

    def change(step: int) -> None:
        for number in range(step, 600, 7):
            upstream.put((number, "EU", None, f"step {step}"))
        upstream.delete(step)

    for number in range(600):
        upstream.put((number, "EU", None, "first"))
    upstream.barrier()
    with stage.running() as run:
        for step in range(1, 3):
            change(step)
            run.reach(upstream.barrier())
        assert LOG in jobs or by_spark == []
        assert {"read", "decode", "order", "check"} <= set(run.reports[-1].lane_ms)
    with stage.running(**BY_SPARK) as run:
        before = len(by_spark)
        for step in range(3, 5):
            change(step)
            run.reach(upstream.barrier())
        assert len(by_spark) >= before + 2
        assert {"read", "decode", "order", "check"} <= set(run.reports[-1].lane_ms)
    with stage.running() as run:
        for job in jobs:
            run.reach(upstream.barrier(Throttle(job["name"], None)))
        while not all(run.is_complete(job["name"]) for job in jobs):
            change(5)
            upstream.put((5, "EU", None, "again"))
            run.reach(upstream.barrier())
        before = len(by_spark)
        change(6)
        run.reach(upstream.barrier())
        assert len(by_spark) == before
    stage.assert_lawful()


@pytest.mark.parametrize(
    ("upstream_type", "sizes", "are_short"),
    [
        pytest.param(
            SortedUpserts, (7_900, 8_100, 1_100, 900), (True, False, False, True), id="JSON one by one"
        ),
        pytest.param(RealUpstream, (7_900, 8_100, 1_100, 900), (True, False, False, True), id="by columns"),
        pytest.param(
            UpsertUpstream, (7_900, 8_100, 1_100, 900), (True, False, False, True), id="JSON by columns"
        ),
        pytest.param(
            DebeziumUpstream, (7_900, 8_100, 1_100, 900), (True, False, False, True), id="events by columns"
        ),
    ],
)
def test_batches_many_times_as_long_are_short(
    set_up: SetUp,
    by_spark: list[int],
    upstream_type: type[RealUpstream],
    sizes: Sequence[int],
    are_short: Sequence[bool],
) -> None:
    stage = set_up({"name": "copy"}, upstream_type=upstream_type)
    upstream, found = stage.upstream, []
    with stage.running(limits={"short_records": 100}) as run:
        for size in sizes:
            before = len(by_spark)
            for number in range(size):
                upstream.put((number, "EU", None, f"{size}"))
            run.reach(upstream.barrier())
            found.append(len(by_spark) == before)
    assert tuple(found) == are_short
    stage.assert_lawful()
