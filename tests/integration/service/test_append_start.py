"""Where rows without identity start: at the earliest record that is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal

from structlog.testing import capture_logs

from tests.kit.kafka_topics import remove_beginning
from tests.kit.real import Run, Stage, records
from tests.kit.real_rows import AppendUpstream

SetUp = Callable[..., Stage]
EVENTS = {"name": "events", "columns": {"id": "bigint", "region": "string", "amount": "decimal(18,2)"}}
ALL = {"name": "all", "read": "topic", "format": "append", "output_partitions": None}


def completes(run: Run, upstream: AppendUpstream) -> None:
    run.reach(upstream.barrier())
    while not run.is_complete("all"):
        run.reach(upstream.barrier())


def test_it_starts_at_the_earliest_record_that_is_there_and_says_so(set_up: SetUp, bootstrap: str) -> None:
    stage = set_up(ALL, table=EVENTS, partitions=2, lanes=2, beside=True, upstream_type=AppendUpstream)
    upstream, wanted = stage.upstream, [list[int](), list[int]()]
    assert isinstance(upstream, AppendUpstream)
    upstream.barrier()
    for number in range(12):
        upstream.append((number, "EU", Decimal(50)), b"k", number % 2)
        wanted[number % 2].append(number)
    upstream.flush()
    remove_beginning(bootstrap, upstream.name, 4, partition=1)
    del wanted[1][:4]
    with capture_logs() as logs, stage.running() as run:
        completes(run, upstream)
        assert "offsets 0, 4" in str(run.service.vitals.start)
    assert [line["offsets"] for line in logs if line["event"] == "starts_at"] == [[0, 4]]
    remove_beginning(bootstrap, upstream.name, 6, partition=1)  # what was read may go
    with stage.running() as run:
        upstream.append((12, "EU", Decimal(50)), b"k", 0)
        wanted[0].append(12)
        completes(run, upstream)
        assert "offsets 0, 4" in str(run.service.vitals.start)
    found = records(upstream.kafka, stage.config().jobs[0].output)
    assert [[json.loads(message.value() or b"")["id"] for message in part] for part in found] == wanted
