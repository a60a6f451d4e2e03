"""Barriers beside the data: nothing of the service is in the data topic, and what its owner has there is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from schemas.errors import Code, EnvironmentProblem, TopicError
from schemas.records import Change, Op, Pause
from schemas.topics import UpstreamTopics
from streaming.control.client import ControlClient, send_request
from streaming.control.state_view import StateReader
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.verify.judge import verify_topics
from tests.kit.real import Run, SetUp, Stage, records
from tests.kit.real_upstream import version_of

COPY = {"name": "copy", "rate_limit": 400}


def test_a_table_goes_out_whole_through_a_restart_and_the_data_topic_holds_data_alone(set_up: SetUp) -> None:
    stage = set_up(COPY, beside=True)
    upstream = stage.upstream
    for number in range(900):
        upstream.put(version_of(number))
    with stage.running() as run:
        run.reach(upstream.barrier())
        upstream.put(version_of(3, 1))
        run.reach(upstream.barrier())
        run.reach(upstream.barrier())  # nothing came before it
    upstream.put(version_of(899, 2))
    upstream.delete(5)
    upstream.barrier()
    with stage.running() as run:
        while not run.is_complete("copy"):
            upstream.put(version_of(1_000 + len(run.reports)))
            run.reach(upstream.barrier())
    assert stage.verify().clean
    assert {each.in_data for report in run.reports for each in report.plan.barriers} == {False}
    written = [message for part in records(upstream.kafka, upstream.name) for message in part]
    assert {Op(upstream.changes.decode(message.value() or b"").op) for message in written} == set(Op)
    assert all(message.key() is not None for message in written)


def test_a_header_that_the_owner_calls_barrier_is_no_barrier(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"}, beside=True)
    upstream = stage.upstream
    upstream.put(version_of(1))
    upstream.flush()
    value = upstream.changes.encode
    upstream.send(
        0, upstream.keys.encode((2,)), value(Change(Op.INSERT, None, version_of(2))), barrier=b"theirs"
    )
    with stage.running() as run:
        run.reach(upstream.barrier())
        assert run.reports[-1].changes == 2
        run.reach(upstream.barrier())
    assert stage.verify().clean


def own(stage: Stage, name: str) -> dict[str, Any]:
    """The settings that a service has of its own on an upstream that others read too."""
    unique = f"{stage.upstream.name}.{name}"
    job = {"name": name, "output": f"{unique}-copy", "output_partitions": 4}
    return {
        "barriers": "inject",
        "barrier_interval": "200ms",
        "barrier_topic": f"{unique}.barriers",
        "control_topic": f"{unique}.control",
        "state": name,
        "jobs": [job],
    }


def test_two_services_live_side_by_side_on_one_upstream_and_obey_their_own_requests(set_up: SetUp) -> None:
    stage = set_up()
    upstream = stage.upstream
    for number in range(300):
        upstream.put(version_of(number))
    settings = [own(stage, name) for name in ("one", "two")]
    with stage.running(**settings[0]) as first, stage.running(**settings[1]) as second:
        runs: list[Run] = [first, second]
        send_request(upstream.kafka, settings[0]["control_topic"], Pause("one"))
        first.until(lambda: any(report.outcome.reports for report in first.reports))
        for number in range(0, 300, 7):
            upstream.put(version_of(number, 1))
        upstream.flush()
        for run, name in zip(runs, ("one", "two"), strict=True):
            run.until(lambda run=run: sum(report.changes for report in run.reports) >= 343)  # type: ignore[misc]
            run.until(lambda run=run, name=name: run.is_complete(name))  # type: ignore[misc]
    assert not any(report.outcome.reports for report in second.reports)
    for each in settings:
        output, barriers = each["jobs"][0]["output"], (each["barrier_topic"], None)
        report = verify_topics(
            upstream.kafka, upstream.name, output, upstream.table, barriers=barriers, require_complete=True
        )
        assert report.clean


def test_a_barrier_topic_with_other_partitions_is_refused(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    barriers = f"{stage.upstream.name}.barriers"
    create_topic(stage.upstream.kafka, barriers, stage.upstream.partitions + 1)
    stage.fails(TopicError, Code.BARRIER_TOPIC_MISMATCH, barrier_topic=barriers)


def test_a_request_to_a_service_that_was_never_started_is_not_served(
    bootstrap: str, topic: Callable[..., str]
) -> None:
    name = topic()
    topics = UpstreamTopics.of(name, barriers=f"{name}.barriers")
    no_state = cast("StateReader", None)
    with ControlClient(KafkaSettings(bootstrap), topics, no_state, timeout_s=1) as client:  # noqa: SIM117
        with pytest.raises(EnvironmentProblem) as caught:
            client.apply(Pause(None))
    assert caught.value.code is Code.NOT_SERVED
