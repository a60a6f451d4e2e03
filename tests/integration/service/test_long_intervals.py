"""No interval is too large: what a lane does not hold at once, and what no job waits for, goes in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from schemas.errors import BackfillError, Code
from schemas.records import Change, Op
from state.values.plan import BatchPlan
from streaming.service.service import Service
from streaming.source.barriers.injecting import target as last_barrier
from streaming.source.kafka import UpstreamSource
from tests.kit.debezium import DebeziumUpstream
from tests.kit.real import Run, SetUp, Stage
from tests.kit.real_upstream import RealUpstream, UpsertUpstream, row

COPY = {"name": "copy"}
IN_PARTS: dict[str, Any] = {"limits": {"interval_records": 50}}


def completed(stage: Stage, **how: Any) -> Run:
    """Run the service until its jobs are complete, and a barrier further."""
    with stage.running(**how) as run:
        run.reach(stage.upstream.barrier())
        stage.finish(run, "copy")
    return run


def test_an_outage_is_one_interval_and_goes_in_parts(set_up: SetUp) -> None:
    stage = set_up(COPY, {"name": "few", "filter": "note LIKE '%7%'", "columns": ["note"]}, partitions=3)
    upstream = stage.upstream
    for number in range(100):
        upstream.put(row(number))
    completed(stage)
    for number in range(400):
        upstream.put(row(number % 130, f"outage {number}"))
        if number % 9 == 0:
            upstream.delete(number % 130)
    upstream.barrier()
    completed(stage, **IN_PARTS)
    stage.assert_lawful()


def test_more_bytes_than_a_lane_holds_go_in_parts_of_several_intervals(set_up: SetUp) -> None:
    """The lanes find out themselves: nothing is known of how large these changes are."""
    stage = set_up(COPY, partitions=3)
    upstream = stage.upstream
    for number in range(30):
        upstream.put(row(number))
    completed(stage)
    for interval in range(4):
        for number in range(25):
            upstream.put(row(number, f"{interval} " * 20_000))
        upstream.barrier()
    with stage.running(limits={"lane_bytes": "1m"}) as run:
        run.reach(upstream.barrier())
    assert max(len(report.plan.barriers) for report in run.reports) >= 4
    stage.assert_lawful()


def test_a_record_at_fault_in_a_later_part_leaves_nothing_of_the_earlier_ones(set_up: SetUp) -> None:
    stage = set_up(COPY)
    upstream = stage.upstream
    for number in range(20):
        upstream.put(row(number))
    completed(stage)
    for number in range(100):
        upstream.put(row(number, "before"))
    bad = upstream.change(Change(Op.UPDATE, row(8), row(9)))
    upstream.barrier()
    stage.fails(BackfillError, Code.UPDATE_CHANGES_PK, f"{upstream.name}-0@{bad}", **IN_PARTS)
    with stage.running(skip=frozenset({(0, bad)}), **IN_PARTS) as run:
        run.reach(upstream.barrier())
    stage.assert_lawful(left_out=frozenset({(0, bad)}))


def test_a_topic_that_is_there_first_is_built_in_parts_that_are_remembered(set_up: SetUp) -> None:
    stage = set_up(COPY, partitions=3)
    upstream = stage.upstream
    for number in range(600):
        upstream.put(row(number % 250, f"{number}"))
    upstream.barrier()
    first, parts = _parts_of(stage.service(**IN_PARTS), most=5)
    assert len(parts) == 5
    assert first.error is None
    assert not first.reports
    second, further = _parts_of(stage.service(until_complete=True, **IN_PARTS))
    while second.is_alive:
        upstream.barrier()
        second.await_more()
    assert second.error is None
    assert further[0].end_offsets == parts[-1].end_offsets  # found in the log, and reported once more
    assert further[1].first_offsets == parts[-1].end_offsets
    assert 5 <= len(further) <= 9
    stage.assert_lawful()


@pytest.mark.parametrize(
    ("lanes", "upstream_type", "is_exchanged"),
    [
        (3, RealUpstream, False),
        (4, RealUpstream, True),
        (3, UpsertUpstream, False),
        (3, DebeziumUpstream, False),
    ],
)
def test_what_no_job_waits_for_is_read_by_partitions_and_not_exchanged(
    set_up: SetUp,
    monkeypatch: pytest.MonkeyPatch,
    lanes: int,
    upstream_type: type[RealUpstream],
    is_exchanged: bool,
) -> None:
    stage = set_up(
        {**COPY, "output_partitions": lanes}, partitions=3, lanes=lanes, upstream_type=upstream_type
    )
    upstream = stage.upstream
    for number in range(400):
        upstream.put(row(number % 150, f"{number}"))
        if number % 9 == 0:
            upstream.delete(number % 150)
        if number % 50 == 49 and isinstance(upstream, DebeziumUpstream):
            upstream.again(70)
    upstream.barrier()
    calls = _calls(monkeypatch, "in_place", "exchanged")
    completed(stage, limits={"interval_records": 50, "short_records": 0})
    assert (calls["in_place"] >= 8) is not is_exchanged
    stage.assert_lawful()


def test_too_many_bytes_for_a_few_records_are_no_reason_to_exchange_them(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = set_up(COPY, partitions=2, lanes=2, upstream_type=DebeziumUpstream)
    for number in range(6_000):
        stage.upstream.put(row(number, "x" * 12_000))
    stage.upstream.barrier()
    calls = _calls(monkeypatch, "in_place", "exchanged")
    completed(stage)
    assert calls == {"in_place": 1}
    stage.assert_lawful()


def test_a_record_at_fault_that_no_job_waits_for_is_reported_once(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = set_up(COPY, partitions=3)
    upstream = stage.upstream
    for number in range(120):
        upstream.put(row(number))
    key = upstream.keys.encode((1_000,))
    sound = upstream.changes.encode(Change(Op.INSERT, None, row(1_000)))
    bad = [
        (1, upstream.send(1, key, sound + b"\x00"), Code.AVRO_TRAILING),
        (2, upstream.change(Change(Op.UPDATE, row(8), row(9)), partition=2), Code.UPDATE_CHANGES_PK),
    ]
    for number in range(120):
        upstream.put(row(number, "after"))
    upstream.barrier()
    calls = _calls(monkeypatch, "in_place", "exchanged")
    how: dict[str, Any] = {"limits": {"short_records": 0}}
    skip: frozenset[tuple[int, int]] = frozenset()
    for partition, offset, code in bad:
        stage.fails(BackfillError, code, f"{upstream.name}-{partition}@{offset}", skip=skip, **how)
        skip |= {(partition, offset)}
    assert calls["in_place"] >= len(bad)
    with stage.running(skip=skip, **how) as run:
        run.reach(upstream.barrier())
        run.until(lambda: run.is_complete("copy"))
    stage.assert_lawful(left_out=skip)


def _calls(monkeypatch: pytest.MonkeyPatch, *names: str) -> Counter[str]:
    """Counts calls of these methods of the upstream's source from now on."""
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        method = getattr(UpstreamSource, name)

        def call(*how: Any, **more: Any) -> Any:
            calls[name] += 1
            return method(*how, **more)

        return call

    for name in names:
        monkeypatch.setattr(UpstreamSource, name, counted(name))
    return calls


def _parts_of(service: Service, most: int | None = None) -> tuple[Run, list[BatchPlan]]:
    """The parts that a run builds, until it has built so many, or its first batch is done."""
    parts: list[BatchPlan] = []

    def built(plan: BatchPlan) -> None:
        parts.append(plan)
        if len(parts) == most:
            service.stop()

    service.on_part = built
    run = Run(service)
    if most is None:
        run.until(lambda: bool(run.reports))
    else:
        run.end()
    return run, parts


@pytest.mark.parametrize("barriers", [0, 3])
def test_the_last_barrier_is_found_behind_very_many_records(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch, barriers: int
) -> None:
    """By Spark, in windows; in partition 0 there are hardly any records behind it."""
    monkeypatch.setattr(last_barrier, "_NEAR_RECORDS", 10)
    monkeypatch.setattr(last_barrier, "_RECORDS_A_PARTITION", 0)
    monkeypatch.setattr(last_barrier, "_WINDOW_RECORDS", 70)
    stage = set_up(COPY, partitions=3)
    upstream = stage.upstream
    for _ in range(barriers):
        for number in range(30):
            upstream.put(row(number))
        upstream.barrier()
    for number in range(300):
        key = upstream.keys.encode((1_000 + number,))
        change = upstream.changes.encode(Change(Op.INSERT, None, row(1_000 + number)))
        upstream.send(1 + number % 2, key, change)
    with stage.running(barriers="inject") as run:
        run.until(lambda: len(run.reports) > 2 and run.is_complete("copy"))
    first = run.reports[0].plan.barriers
    assert [aligned.barrier.prev for aligned in first][barriers] == (
        upstream.last.curr if upstream.last else 0
    )
    stage.assert_lawful()
