"""Others with our transactional ids: a successor ends the service, a client without a right does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemas.errors import Fenced
from schemas.topics import UpstreamTopics
from state.journal import Journal
from state.replica import Replica
from state.storage import Storage
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.transactions import TransactionalProducer
from streaming.protocol.lanes.attempts import transactional_id
from streaming.service.service import Service
from streaming.source.barriers.injecting.control_topic import injector_id
from tests.kit.real import Run, SetUp, Stage, expected


@contextmanager
def fencing(kafka: KafkaSettings, *names: str) -> Iterator[list[str]]:
    """Take transactional ids again and again; the list grows with each."""
    taken: list[str] = []
    ending = threading.Event()

    def take() -> None:
        while not ending.wait(1.0):
            for name in names:
                TransactionalProducer(kafka, name).close()
                taken.append(name)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield taken
    finally:
        ending.set()
        thread.join()


def test_who_fences_without_having_taken_the_state_over_delays_and_does_not_end(set_up: SetUp) -> None:
    stage = set_up({"name": "copy", "rate_limit": 300})
    stage.lanes = 2
    for number in range(2_000):
        stage.upstream.put((number, "EU", None, None))
    with stage.running(barriers="inject", barrier_interval="100ms") as run:
        run.until(lambda: len(run.reports) > 2)
        replica = Replica(Storage(str(stage.folder / "state")), stage.upstream.table)
        lanes = [f"{transactional_id(replica)}-{lane}" for lane in range(2)]
        with fencing(
            stage.upstream.kafka, *lanes, injector_id(UpstreamTopics.of(stage.upstream.name))
        ) as taken:
            run.until(lambda: len(taken) >= 12)
        run.until(lambda: run.is_complete("copy"))
    stage.assert_lawful()


def owned(stage: Stage, owner: str, **over: Any) -> Service:
    """Owners are distinguished by their process, and here they are threads of one."""
    service = stage.service(**over)
    service.owner = owner
    return service


def test_a_fenced_service_that_is_started_again_waits_while_its_successor_lives(
    set_up: SetUp,
) -> None:
    stage = set_up({"name": "copy"})
    how: dict[str, Any] = {"barriers": "inject", "barrier_interval": "100ms"}
    first = Run(owned(stage, "first", **how))
    first.until(lambda: len(first.reports) > 2)
    second = Run(owned(stage, "second", **how))
    assert isinstance(first.end(), Fenced)
    again = Run(owned(stage, "first again", **how))
    second.until(lambda: len(second.reports) > 20)
    assert not again.reports
    second.stop()
    again.until(lambda: len(again.reports) > 2)
    again.stop()
    assert stage.verify().clean


def test_who_took_the_state_over_ends_the_service_and_is_named(set_up: SetUp) -> None:
    stage = set_up({"name": "copy", "rate_limit": 100})
    for number in range(2_000):
        stage.upstream.put((number, "EU", None, None))
    run = Run(stage.service(barriers="inject", barrier_interval="100ms"))
    run.until(lambda: len(run.reports) > 2)
    journal = Journal(Storage(str(stage.folder / "state")), stage.upstream.table)
    journal.take_over("the one in its place", json.dumps(stage.upstream.table.to_dict()))
    error = expected(run.end(), Fenced)
    assert "the one in its place" in str(error)
    with stage.running(barriers="inject", barrier_interval="100ms") as successor:
        successor.until(lambda: len(successor.reports) > 2)
    assert stage.verify(complete=False).clean
