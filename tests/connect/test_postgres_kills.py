"""Connect and the service are killed between PostgreSQL and an output, and redelivered records count once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable

import pytest

from schemas.records import Barrier
from streaming.kafka.consumer import RangeReader
from tests.connect.conftest import Circle
from tests.connect.test_postgres_in import COPY, FORMS, SOME, is_what_the_database_has
from tests.kit.folded import epoch_of, fold_of
from tests.kit.process import Process
from tests.kit.real import await_condition, records

pytestmark = [pytest.mark.connect, pytest.mark.timeout(1_200)]
CircleOf = Callable[..., Circle]


def started(circle: Circle) -> Process:
    """The service as a process."""
    circle.stage.upstream.flush()
    path = circle.stage.folder / "config.json"
    path.write_text(json.dumps(circle.stage.declared()), encoding="utf-8")
    return Process.start(path)


def reach(circle: Circle, process: Process, barrier: Barrier) -> None:
    """Wait until both outputs are there. Barriers follow: an output begins a batch after that of its job."""
    config, kafka = circle.stage.config(), circle.stage.upstream.kafka

    def is_there() -> bool:
        if process.popen.poll() is not None:
            return True
        if all(epoch_of(config, kafka, number) >= barrier.curr for number in (0, 1)):
            return True
        circle.stage.upstream.barrier()
        return False

    await_condition(is_there, "both outputs at a barrier")
    assert process.popen.poll() is None, process.lines[-5:]


def written(circle: Circle) -> int:
    """Records of the connector so far."""
    with RangeReader(circle.stage.upstream.kafka) as reader:
        return sum(mark.stable for mark in reader.watermarks(circle.stage.upstream.name))


def again(circle: Circle) -> int:
    """The number of records that the connector has written twice."""
    found: Counter[tuple[bytes, int, str]] = Counter()
    for part in records(circle.stage.upstream.kafka, circle.stage.upstream.name):
        for message in part:
            event = json.loads(message.value() or b"null")
            if event is not None and event["source"]["snapshot"] == "false":
                found[bytes(message.key() or b""), event["source"]["lsn"], event["op"]] += 1
    return sum(count - 1 for count in found.values())


def test_what_comes_again_after_kills_counts_once(circle_of: CircleOf) -> None:
    upstream, settings = FORMS["plain"]
    circle = circle_of({"format": "debezium", "decimal": "precise", **upstream}, settings, COPY, SOME)
    connect, writers, source = circle.connect, circle.writers, circle.source
    config, kafka = circle.stage.config(), circle.stage.upstream.kafka
    writers.write(300)
    source.begin()
    source.await_all()  # its offsets are kept; without any it would begin with a snapshot, and miss deletes
    connect.kill()
    connect.start(flush_interval_ms=600_000)  # what it has written is not known to have been
    connect.await_ready()
    source.await_streaming()
    process = started(circle)
    try:
        before = written(circle)
        writers.write(500)
        await_condition(lambda: written(circle) > before + 50, "records of the connector")
        reach(circle, process, circle.stage.upstream.barrier())
        writers.write(100)
        connect.kill()
        process.kill()
        assert process.end() == -9
        writers.write(100)
        connect.start()
        connect.await_ready()
        source.await_streaming()
        process = started(circle)
        reach(circle, process, circle.barrier())
        while len(fold_of(config, kafka, 0)[1].finished & fold_of(config, kafka, 1)[1].finished) < 16:
            writers.write(20)
            reach(circle, process, circle.barrier())
        is_what_the_database_has(circle)
        assert again(circle) > 40
        assert process.end(signal.SIGTERM) == 0
    finally:
        process.kill()
    assert circle.stage.verify(0).clean
    assert circle.stage.verify(1).clean
