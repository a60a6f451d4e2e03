"""Headers of upstream records that jobs pass on, whichever way records come to their lanes."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from schemas.records import BARRIER_HEADER, EPOCH_HEADER
from tests.kit.real import SetUp, Stage, records

OWN = {BARRIER_HEADER, EPOCH_HEADER}
ROWS = 30
JOBS: list[dict[str, Any]] = [
    {"name": "copy", "headers": ["trace-id"]},
    {"name": "rows", "format": "upsert", "headers": ["tenant", "trace-id"]},
    {"name": "plain"},
    {"name": "log", "read": "topic", "output_partitions": None, "headers": ["trace-id"]},
]


def passed_on(message: Message) -> list[tuple[str, Any]]:
    return [(header[0], header[1]) for header in message.headers() or () if header[0] not in OWN]


def data_of(stage: Stage, job: int) -> list[Message]:
    """The records of an output without its barriers."""
    found = records(stage.upstream.kafka, stage.config().jobs[job].output)
    return [each for part in found for each in part if BARRIER_HEADER not in dict(each.headers() or ())]


@pytest.mark.parametrize(
    "limits",
    [{}, {"short_records": 0}, {"short_records": 0, "interval_records": 10}],
    ids=["direct", "exchanged", "parts"],
)
def test_live_records_keep_the_headers_that_are_asked_for_and_rows_of_the_snapshot_have_none(
    set_up: SetUp, limits: dict[str, int]
) -> None:
    stage = set_up(*JOBS)
    upstream = stage.upstream
    upstream.headers = [("trace-id", b"old"), ("tenant", b"t"), ("other", b"o")]
    for number in range(ROWS):
        upstream.put((number, "EU", None, None))
    upstream.barrier()
    names = [job["name"] for job in JOBS]
    with stage.running(limits=limits) as run:
        stage.finish(run, *names)
        upstream.headers = [("trace-id", b"1"), ("tenant", None), ("trace-id", b"2"), ("other", b"o")]
        for number in range(ROWS):
            upstream.put((number, "EU", None, "live"))
        upstream.delete(7)
        run.reach(upstream.barrier())
    twice = [("trace-id", b"1"), ("trace-id", b"2")]
    live = {0: twice, 1: [twice[0], ("tenant", None), twice[1]], 2: [], 3: twice}
    for number, expected in live.items():
        found = list(map(passed_on, data_of(stage, number)))
        snapshot = [("trace-id", b"old")] if number == 3 else []
        assert len(found) == 2 * ROWS + 1
        assert sorted(found, key=str) == sorted([snapshot] * ROWS + [expected] * (ROWS + 1), key=str)
        assert stage.verify(number).clean
