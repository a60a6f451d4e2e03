"""The number of lanes changes by the command, several times, while two jobs read: real broker, real Spark."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from schemas.errors import EnvironmentProblem
from schemas.records import Lanes, Pause
from schemas.topics import UpstreamTopics
from streaming.control.client import refuse_former
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.source.barriers.injecting.control_topic import injector_id
from tests.integration.service.test_backfill import COPY, FILTERED, fill, stir
from tests.integration.service.test_control_requests import Say, refused
from tests.integration.service.test_control_requests import say as say
from tests.kit.real import Run, SetUp, Stage


def test_lanes_go_up_and_down_by_the_command_while_jobs_read_and_outlive_a_restart(
    set_up: SetUp, say: Say
) -> None:
    stage = set_up({**COPY, "rate_limit": 10}, {**FILTERED, "rate_limit": 10}, lanes=2)
    fill(stage.upstream, 1_200)
    with stage.running(barriers="inject", barrier_interval="100ms") as run:
        run.until(lambda: _read(run) > 0)
        for version, lanes in enumerate((4, 1, 2, 4), 1):
            stir(stage.upstream, version)
            status, out, err = say(stage, "lanes", str(lanes))
            assert (status, out.startswith(f"lanes {lanes}: since barrier ")) == (0, True), err
            _await_lanes(run, lanes)
            assert not run.is_complete("copy"), "the changes were meant for a job that reads"
        assert refused(say(stage, "lanes", "3"), "RESCALE_REFUSED", 2)
        assert refused(say(stage, "lanes", "0"), "USAGE", 2)
        assert _status(say, stage) == (4, 4)
    with stage.running(lanes=1, barriers="inject", barrier_interval="100ms") as run:
        stir(stage.upstream, 9)
        _await_lanes(run, 4)
        assert {report.plan.lanes for report in run.reports} == {4}
        for name in ("copy", "some"):
            assert say(stage, "throttle", name, "unlimited")[0] == 0
        run.until(lambda: run.is_complete("copy") and run.is_complete("some"))
    stage.assert_lawful()


def test_nothing_is_sent_where_an_owner_of_a_former_version_writes_the_barriers(bootstrap: str) -> None:
    kafka, topics = KafkaSettings(bootstrap), UpstreamTopics.of(f"up-{uuid.uuid4().hex[:8]}")
    create_topic(kafka, topics.data, 1)
    refuse_former(kafka, topics, Lanes(4))  # nobody writes them yet
    former = {"owner": "a state", "interval_ms": 1_000, "who": "process 1 on host"}
    for claim, is_refused in ((former, True), (former | {"by_name": True}, False)):
        group = kafka.consumer(**{"group.id": injector_id(topics)})
        with closing(Consumer(group)) as consumer:
            place = TopicPartition(topics.control, 0, 0, json.dumps(claim))
            consumer.commit(offsets=[place], asynchronous=False)
        refuse_former(kafka, topics, Pause(None))
        if is_refused:
            with pytest.raises(EnvironmentProblem, match="process 1 on host, whose version knows no Lanes"):
                refuse_former(kafka, topics, Lanes(4))
        else:
            refuse_former(kafka, topics, Lanes(4))


def _read(run: Run) -> int:
    return sum(sum(report.snapshot_rows.values()) for report in run.reports)


def _await_lanes(run: Run, lanes: int) -> None:
    run.until(lambda: bool(run.reports) and run.reports[-1].plan.lanes == lanes)


def _status(say: Say, stage: Stage) -> tuple[Any, Any]:
    _, out, err = say(stage, "status", "--json")
    assert out, err
    shown: dict[str, Any] = json.loads(out)
    return shown["lanes"], shown["lanes_set"]
