"""The API's requests are judged as those of the commands are, before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.errors import BackfillError, Code
from schemas.job import JobDefinition
from schemas.records import Add, Lanes, Mutation
from schemas.settings.config import ServiceConfig, check
from schemas.settings.job_keys import KEYS
from state.storage import Storage
from state.values.plan import JobState
from state.values.progress import Completed, InProgress, Progress
from streaming.kafka.clients import KafkaSettings
from streaming.observe.gateway import ControlApi, NewJob
from streaming.observe.status_cache import StatusCache
from streaming.service.vitals import Vitals
from streaming.sink.kinds import Sinks, SinkSetup
from tests.kit.reports import SOURCE, TABLE, report

NOWHERE = KafkaSettings("127.0.0.1:1", wait_s=0.1)
COPY = {"name": "copy", "output": "copy-out"}


def gateway(config: ServiceConfig, progress: dict[int, Progress], folder: Path) -> ControlApi:
    """One that has seen a batch of the job `copy`, and whose broker is away."""
    table = config.table.with_partitions(2)
    vitals = Vitals("up", 1_000, late_s=30.0, injects=False)
    cache = StatusCache("up", table.name, "me", 2, vitals, SOURCE, by_partition=table.by_partition)
    definition = JobDefinition.declare(COPY, table).with_partitions(2)
    known = JobState(definition, 1, opened=True)
    cache.note(report([known], {"copy": progress}, vnode_count=table.vnode_count))
    sinks = Sinks(SinkSetup.from_config(config, NOWHERE, parks=False))
    return ControlApi(cache, Storage(str(folder)), NOWHERE, lambda: config, sinks)


def config_of(upstream: object = "up", **table: Any) -> ServiceConfig:
    fixed = ("name", "columns", "primary_key")
    declared = {key: value for key, value in TABLE.to_dict().items() if key in fixed} | table
    return check({"upstream": upstream, "state": "state", "table": declared}, path=Path("/config.yaml"))


def refused(control: ControlApi, mutation: Mutation) -> Code:
    with pytest.raises(BackfillError) as caught:
        control.send(mutation)
    return caught.value.code


@pytest.mark.parametrize(
    ("last", "code"),
    [(Completed((9,), 50), Code.BROKER_UNREACHABLE), (InProgress((9,), 50), Code.RESCALE_REFUSED)],
)
def test_lanes_are_free_once_a_no_shuffle_backfill_is_read(
    last: Progress, code: Code, tmp_path: Path
) -> None:
    control = gateway(config_of(distribution="upstream"), {0: Completed(None, 0), 1: last}, tmp_path)
    assert refused(control, Lanes(1)) is code


def test_a_job_that_the_upstream_can_not_be_read_by_is_refused(tmp_path: Path) -> None:
    control = gateway(config_of({"topic": "up", "format": "upsert", "encoding": "json"}), {}, tmp_path)
    wanted = JobDefinition.declare({"name": "all", "output": "all-out", "read": "topic"}, TABLE)
    assert refused(control, Add(wanted.to_json())) is Code.JOB_INVALID
    with pytest.raises(BackfillError, match="read: topic needs"):
        control.plan(wanted)


def test_a_new_job_has_every_key_of_a_job() -> None:
    assert {field.alias or name for name, field in NewJob.model_fields.items()} == KEYS.keys()
