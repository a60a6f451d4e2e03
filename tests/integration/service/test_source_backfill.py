"""Jobs that read the upstream topic: every record since its beginning, on a real broker; `verify` is the judge."""

from __future__ import annotations

from confluent_kafka import Producer

from schemas.errors import Code, ConfigError
from schemas.records import Add, Throttle
from state.values.progress import Completed, InProgress
from tests.kit.real import SetUp, records
from tests.kit.real_upstream import churn, order

TOPIC = {"output_partitions": None, "read": "topic"}
LOG = {"name": "log", **TOPIC}
SOME = {
    "name": "some",
    **TOPIC,
    "columns": ["note", "amount"],
    "filter": "amount >= 100",
    "format": "debezium",
    "encoding": "json",
}


def test_every_record_is_sent_beside_a_table_through_a_restart_with_other_lanes(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"}, {**LOG, "rate_limit": 400}, SOME, partitions=4, lanes=4)
    for version in range(3):
        for number in range(600):
            stage.upstream.put(order(number, version))
        stage.upstream.barrier()
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        churn(stage.upstream, 3)
        run.reach(stage.upstream.barrier())
        read = run.reports[-1].progress["log"]
        assert any(isinstance(each, InProgress) for each in read.values())
    churn(stage.upstream, 4)
    stage.upstream.barrier()
    with stage.running(lanes=2) as run:
        run.reach(stage.upstream.barrier(Throttle("log", None)))
        while not all(map(run.is_complete, ("copy", "log", "some"))):
            churn(stage.upstream, 5)
            run.reach(stage.upstream.barrier())
        churn(stage.upstream, 6)
        run.reach(stage.upstream.barrier())
        assert set(run.reports[-1].progress["log"]) == {0, 1, 2, 3}
    stage.assert_lawful()
    assert stage.verify(1).parts == "partitions"
    assert stage.verify(1).snapshot_rows > 1_800


def test_idle_partitions_and_aborted_records_are_read_to_their_end(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"}, LOG, partitions=4, lanes=2, beside=True)
    upstream = stage.upstream
    home = order(1)
    for version in range(40):
        upstream.put(order(1, version))
    upstream.flush()
    producer = Producer(upstream.kafka.producer(**{"transactional.id": f"aborted-{upstream.name}"}))
    producer.init_transactions(30)
    for _ in range(3):  # at the end of each partition are records that no reader sees, and their markers
        producer.begin_transaction()
        for partition in range(4):
            producer.produce(upstream.name, b"?", b"?", partition)
        producer.flush(30)
        producer.abort_transaction(30)
    upstream.barrier()
    with stage.running() as run:
        stage.finish(run, "log")
        assert all(isinstance(each, Completed) for each in run.reports[-1].progress["log"].values())
        upstream.put(home)
        run.reach(upstream.barrier())
    report = stage.verify(1)
    assert report.clean, report
    assert report.snapshot_rows == 40
    sent = records(upstream.kafka, stage.config().jobs[1].output)
    changes = [[message for message in each if message.key() is not None] for each in sent]
    assert sorted(map(len, changes)) == [0, 0, 0, 41]


def test_a_job_that_can_not_have_the_upstreams_partitions_is_refused(set_up: SetUp) -> None:
    stage = set_up({**LOG, "output_partitions": 4}, partitions=2, lanes=2)
    stage.upstream.put(order(1))
    error = stage.fails(ConfigError, Code.JOB_INVALID, barriers="inject", barrier_interval="100ms")
    assert "4 output_partitions, of 2 partitions" in error.found


def test_one_that_is_created_late_starts_at_the_beginning(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"}, {**LOG, "rate_limit": 0}, partitions=2, lanes=2)
    late = stage.config().jobs[1]
    stage.jobs = stage.jobs[:1]
    for number in range(300):
        stage.upstream.put(order(number))
    stage.upstream.barrier()
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        churn(stage.upstream, 1)
        run.reach(stage.upstream.barrier(Add(late.to_json())))
        run.reach(stage.upstream.barrier(Throttle("log", None)))
        churn(stage.upstream, 2)
        stage.finish(run, "log")
    report = stage.verify(output=late.output, reads_upstream=True, barriers=(None, None))
    assert report.clean, report
    assert report.snapshot_rows > 300
