"""A kind of barriers that nobody foresaw: a model, ten lines, two entries in the registries, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from pyspark.sql import DataFrame

from schemas.errors import ConfigError
from schemas.kinds.kinds import BARRIER_KINDS, BarriersConfig
from schemas.settings.config import ServiceConfig, check
from state.values.aligned import AlignedBarrier
from state.values.pin import ReplicaVersion
from state.values.plan import BatchPlan
from streaming.compaction.compactor import Compactor
from streaming.protocol.batches import Batches
from streaming.protocol.micro_batches import MicroBatches
from streaming.protocol.report import BatchReport
from streaming.source.barriers.kinds import SOURCES, barrier_source
from streaming.source.barriers.source import BarrierSetup, BarrierSource, Newest
from tests.kit.barriers import EPOCH_STEP, NO_RECORDS, barrier

NO_SETUP = cast("BarrierSetup", None)


class Ticks(BarriersConfig):
    """A barrier with each micro-batch, at the topic's beginning."""

    kind: Literal["ticks"] = "ticks"


class Ticking(BarrierSource):
    def begin(self, position: AlignedBarrier | None, first: Sequence[int]) -> list[AlignedBarrier]:
        self.count = position.epoch // EPOCH_STEP if position else 0
        return []

    def stream(self) -> DataFrame:
        return NO_RECORDS

    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        self.count += 1
        return [AlignedBarrier(barrier(self.count, 1), (0,), in_data=False)]

    def newest(self) -> Newest:
        return [(barrier(self.count, 1), 0)]


def config(kind: str, folder: Path) -> ServiceConfig:
    table = {"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"]}
    declared = {"upstream": "t", "state": "state", "barriers": kind, "table": table}
    return check(declared, path=folder / "config.yaml")


def test_every_kind_that_can_be_configured_has_a_source() -> None:
    assert set(BARRIER_KINDS.values()) == set(SOURCES)
    for name, kind in BARRIER_KINDS.items():
        assert kind(kind=name).kind == name


def test_a_kind_that_is_not_there_yet_is_refused_by_naming_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="barriers is 'ticks': input should be 'inject' or 'embedded'"):
        config("ticks", tmp_path)


def test_a_kind_that_is_registered_is_configured_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: dict[str, Any] = BARRIER_KINDS
    sources: dict[Any, Any] = SOURCES
    monkeypatch.setitem(kinds, "ticks", Ticks)
    monkeypatch.setitem(sources, Ticks, lambda config, setup: Ticking())
    source = barrier_source(config("ticks", tmp_path).barriers, NO_SETUP)
    source.start()
    taken: list[tuple[int, tuple[int, ...]]] = []

    def run(waiting: Sequence[AlignedBarrier], _: object) -> BatchReport:
        taken.extend((each.epoch // EPOCH_STEP, each.ends) for each in waiting)
        plan = BatchPlan(None, tuple(waiting), (0,), ReplicaVersion(0, 0, 0), 1)
        return cast("BatchReport", SimpleNamespace(plan=plan, outcome=SimpleNamespace(stop=False)))

    batches = cast("Batches", SimpleNamespace(run_batch=run, reads_on=lambda report: False))
    compactor = SimpleNamespace(
        batch_begins=lambda: None, between_batches=lambda epoch, wait_for_compaction: None
    )
    micro_batches = MicroBatches(source, batches, cast("Compactor", compactor), lambda report: None)
    micro_batches.run_batches(source.begin(None, (0,)))
    for number in range(3):
        micro_batches(source.stream(), number)
    assert taken == [(1, (0,)), (2, (0,)), (3, (0,))]
    assert micro_batches.failure is None
    source.check()
    assert micro_batches.close(1)
    source.close()
