"""A table goes to its output whole, while it changes, through restarts and maintenance; `verify` is the judge."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

from schemas.errors import Fenced
from schemas.records import Throttle
from state.replica import LOG_PATH
from tests.kit.real import Run, SetUp, Stage
from tests.kit.real_upstream import RealUpstream

REGIONS = ("EU", "US", "APAC", None)
COPY = {"name": "copy"}
FILTERED = {
    "name": "some",
    "columns": ["note", "amount"],
    "filter": "amount >= 100 AND region IN ('EU', 'US')",
}


def order(number: int, version: int = 0) -> tuple[Any, ...]:
    amount = Decimal((number * 37 + version * 55) % 400)
    return (
        number,
        REGIONS[(number + version) % 4],
        amount.quantize(Decimal("0.01")),
        f"n{version}" if number % 5 else None,
    )


def fill(upstream: RealUpstream, count: int) -> None:
    for number in range(count):
        upstream.put(order(number))


def stir(upstream: RealUpstream, version: int, count: int = 60) -> None:
    """Updates all over the table, some deletes, some inserts between and behind the keys that are there."""
    known = len(upstream.rows)
    for number in range(0, known, max(1, known // count)):
        if (number,) in upstream.rows:
            upstream.put(order(number, version))
        if number % 3 == 0 and (number + 1,) in upstream.rows:
            upstream.delete(number + 1)
    for number in (-version, 10_000 + version):
        upstream.put(order(number, version))


def test_a_table_is_sent_whole_with_its_live_changes_through_filter_and_projection(set_up: SetUp) -> None:
    stage = set_up(COPY, {**FILTERED, "rate_limit": 400})
    fill(stage.upstream, 1_200)
    stage.upstream.barrier()
    with stage.running() as run:
        version = 0
        while not (run.is_complete("copy") and run.is_complete("some")):
            version += 1
            stir(stage.upstream, version)
            run.reach(stage.upstream.barrier())
        assert version >= 3, "the snapshot was meant to take several batches"
    for number in range(2):
        report = stage.verify(number)
        assert report.clean, report
        assert report.snapshot_rows > 1_100


def test_keys_of_every_type_are_placed_and_ordered_as_spark_reads_them(set_up: SetUp) -> None:
    table = {
        "name": "readings",
        "columns": {
            "place": "string",
            "price": "decimal(20,3)",
            "day": "date",
            "at": "timestamp",
            "ok": "boolean",
            "small": "int",
            "value": "double",
            "ratio": "float",
            "blob": "binary",
        },
        "primary_key": ["place", "price", "day", "at", "ok", "small"],
        "distribution_key": ["price", "at", "place", "ok", "day"],
        "vnode_count": 8,
    }
    stage = set_up({"name": "copy", "output_partitions": 8}, table=table, partitions=3, lanes=4)
    places = ["", "a", "ä", "\u00e9\u0301", "日本", "\U0001f980", "a\x00b"]

    def reading(number: int, value: float) -> tuple[Any, ...]:
        return (
            places[number % 7],
            (Decimal(number % 11 - 5) * 10 ** (number % 16)).quantize(Decimal("0.001")),
            dt.date(1969, 12, 25) + dt.timedelta(days=number % 13),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC) + dt.timedelta(microseconds=number),
            number % 2 == 0,
            (-1) ** number * number,
            value,
            None if number % 3 else -0.0,
            bytes([number % 256]) * (number % 4),
        )

    for number in range(400):
        stage.upstream.put(reading(number, 0.5))
    stage.upstream.barrier()
    with stage.running(compaction_least_rows=100) as run:
        run.reach(stage.upstream.barrier())
        for number in range(0, 400, 7):
            stage.upstream.put(reading(number, float("nan")))
        run.reach(stage.upstream.barrier())
        assert run.is_complete("copy")
    report = stage.verify()
    assert report.clean, report
    assert report.snapshot_rows == 400


def test_it_goes_on_after_a_restart_with_another_number_of_lanes(set_up: SetUp) -> None:
    stage = set_up({**COPY, "rate_limit": 400}, lanes=4)
    fill(stage.upstream, 1_500)
    stage.upstream.barrier()
    with stage.running() as run:
        stir(stage.upstream, 1)
        run.reach(stage.upstream.barrier())
        run.reach(stage.upstream.barrier())
        assert 0 < len(run.reports[-1].progress["copy"]) < 16
    stir(stage.upstream, 2)
    stage.upstream.barrier()
    with stage.running(lanes=2) as run:
        run.reach(stage.upstream.barrier(Throttle("copy", None)))
        while not run.is_complete("copy"):
            stir(stage.upstream, 3)
            run.reach(stage.upstream.barrier())
    stage.assert_lawful()


def test_fifty_waiting_barriers_are_taken_in_few_batches_and_none_is_missing(set_up: SetUp) -> None:
    stage = set_up(COPY)
    fill(stage.upstream, 300)
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        run.reach(stage.upstream.barrier())
    waiting = []
    for version in range(1, 51):
        stage.upstream.put(order(version, version))
        waiting.append(stage.upstream.barrier())
    with stage.running() as run:
        run.reach(waiting[-1])
        assert max(len(report.plan.barriers) for report in run.reports) > 10
    report = stage.verify()
    assert report.clean, report
    assert report.barriers == 52


def test_a_partition_a_barrier_behind_holds_back_nothing_but_that_barrier(set_up: SetUp) -> None:
    stage = set_up(COPY, partitions=3)
    fill(stage.upstream, 300)
    stage.upstream.barrier()
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        ahead = [stage.upstream.next()]
        stage.upstream.deliver(ahead[0], 0, 2)
        for version in range(1, 6):
            stir(stage.upstream, version, count=20)
            ahead.append(stage.upstream.next())
            stage.upstream.deliver(ahead[-1], 0, 2)
            stage.upstream.deliver(ahead[-2], 1)
            assert run.reach(ahead[-2]).plan.epoch == ahead[-2].curr
        stage.upstream.deliver(ahead[-1], 1)
        run.reach(ahead[-1])
    stage.assert_lawful()


def test_an_output_is_the_upstream_of_a_second_service(set_up: SetUp) -> None:
    first = set_up({**COPY, "columns": ["region", "id"], "filter": "amount > 50"})
    fill(first.upstream, 400)
    first.upstream.barrier()
    declared = first.upstream.table.to_dict()
    kept = {"region": declared["columns"]["region"], "id": declared["columns"]["id"]}
    second = set_up(
        {"name": "again", "filter": "region = 'EU'"}, table={**declared, "columns": kept}, partitions=4
    )
    second.upstream.name = first.jobs[0]["output"]
    with first.running() as run:
        run.reach(first.upstream.barrier())
        run.reach(first.upstream.barrier())  # the second batch is the one that opens the output
        with second.running() as cascaded:
            version = 0
            while not (run.is_complete("copy") and cascaded.is_complete("again")):
                version += 1
                stir(first.upstream, version)
                cascaded.reach(first.upstream.barrier())
    for stage in (first, second):
        report = stage.verify()
        assert report.clean, report
        assert report.snapshot_rows > 0


def test_the_replica_is_compacted_and_its_log_merged_in_the_middle_of_a_backfill(set_up: SetUp) -> None:
    stage = set_up({**COPY, "rate_limit": 100})
    fill(stage.upstream, 1_200)
    stage.upstream.barrier()
    compacted: set[int] = set()
    with stage.running(compaction_least_rows=400) as run:
        version = 0
        while not (run.is_complete("copy") and merged_log_files(stage)):
            version += 1
            stir(stage.upstream, version, count=150 if len(compacted) < 2 else 10)
            compacted.add(run.reach(stage.upstream.barrier()).plan.replica.compacted_epoch)
            if len(compacted) == 2:
                run.reach(stage.upstream.barrier(Throttle("copy", None)))
    assert len(compacted) >= 2, "one compaction before the job began, one beside it"
    stage.assert_lawful()


def merged_log_files(stage: Stage) -> list[Path]:
    return list((stage.folder / "state" / LOG_PATH).glob("merged*"))


def test_a_second_instance_takes_over_and_the_first_ends_with_status_3(set_up: SetUp) -> None:
    stage = set_up({**COPY, "rate_limit": 300})
    fill(stage.upstream, 1_000)
    stage.upstream.barrier()
    first = Run(stage.service())
    first.reach(stage.upstream.barrier())
    with stage.running() as second:
        stir(stage.upstream, 1)
        second.reach(stage.upstream.barrier(Throttle("copy", None)))
        stage.finish(second, "copy")
        error = first.end()
    assert isinstance(error, Fenced), error
    assert error.exit_status == 3
    stage.assert_lawful()
