"""Others with our transactional ids: a successor ends the service, somebody without a right does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from schemas.errors import Fenced
from state.journal import Journal
from state.replica import Replica
from state.storage import Storage
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.transactions import TransactionalProducer
from streaming.service.batches import transactional_id
from streaming.upstream.injector import injector_id
from tests.kit.real import Run, Stage

SetUp = Callable[..., Stage]


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
        with fencing(stage.upstream.kafka, *lanes, injector_id(stage.upstream.name)) as taken:
            run.until(lambda: len(taken) >= 12)
        run.until(lambda: run.is_complete("copy"))
    report = stage.verify()
    assert report.clean, report


def test_who_took_the_state_over_ends_the_service_and_is_named(set_up: SetUp) -> None:
    stage = set_up({"name": "copy", "rate_limit": 100})
    for number in range(2_000):
        stage.upstream.put((number, "EU", None, None))
    run = Run(stage.service(barriers="inject", barrier_interval="100ms"))
    run.until(lambda: len(run.reports) > 2)
    journal = Journal(Storage(str(stage.folder / "state")), stage.upstream.table)
    journal.take_over("the one in its place", 2, json.dumps(stage.upstream.table.to_dict()))
    error = run.end()
    assert isinstance(error, Fenced)
    assert "the one in its place" in str(error)
    with stage.running(barriers="inject", barrier_interval="100ms") as successor:
        successor.until(lambda: len(successor.reports) > 2)
    assert stage.verify(complete=False).clean
