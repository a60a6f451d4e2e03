"""Upstreams of rows without identity: each record once, in order, with the key that it came with; `verify` judges."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from structlog.testing import capture_logs

from schemas.avro.registered import frame
from schemas.errors import Code, ConfigError, InputError
from schemas.formats.append import AppendFormat
from schemas.records import BARRIER_HEADER, Add, Throttle
from state.storage import Storage
from state.values.progress import Completed, InProgress
from streaming.cli.jobs.served import known_jobs
from streaming.control.state_view import StateReader
from streaming.kafka.consumer import header_of
from streaming.registry.client import AskedSchemas, Registry
from streaming.sink.dead_letters import CODE_HEADER
from tests.kit.kafka_topics import remove_beginning
from tests.kit.real import SetUp, Stage, records
from tests.kit.real_upstream import AppendUpstream
from tests.kit.registry import FakeRegistry

EVENTS = {"name": "events", "columns": {"id": "bigint", "region": "string", "amount": "decimal(18,2)"}}
KEYS = (None, None, b"", b"a", b"b", b"\xff\x00")
JOB = {"read": "topic", "format": "append", "output_partitions": None}
ALL = {"name": "all", **JOB}
SOME = {"name": "some", **JOB, "columns": ["amount", "id"], "filter": "amount >= 100", "rate_limit": 400}

Wanted = list[list[tuple[bytes | None, Any]]]


def append(stage: Stage, count: int, chance: random.Random, wanted: Wanted) -> None:
    """Rows of few values in all partitions, many of them equal, with null values among them."""
    upstream = stage.upstream
    assert isinstance(upstream, AppendUpstream)
    for _ in range(count):
        partition, key = chance.randrange(upstream.partitions), chance.choice(KEYS)
        row = (chance.randrange(3), chance.choice(["EU", None]), Decimal(chance.choice([50, 100, 250])))
        upstream.append(row, key, partition)
        wanted[partition].append((key, row))
        if chance.random() < 0.02:
            upstream.send(partition, key, None)


def sent(stage: Stage, output: str) -> list[list[tuple[bytes | None, Any]]]:
    """Keys and values of an output's rows, by partition."""
    return [
        [
            (_raw(message.key()), json.loads(message.value() or b""))
            for message in part
            if header_of(message, BARRIER_HEADER) is None
        ]
        for part in records(stage.upstream.kafka, output)
    ]


def _raw(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


@pytest.mark.parametrize(
    "beside",
    [
        pytest.param(False, id="barriers in the data", marks=pytest.mark.thorough),
        pytest.param(True, id="barriers beside"),
    ],
)
def test_every_row_goes_out_once_through_restarts_with_any_number_of_lanes(
    set_up: SetUp, beside: bool
) -> None:
    stage = set_up(
        ALL, SOME, table=EVENTS, partitions=4, lanes=3, beside=beside, upstream_type=AppendUpstream
    )
    upstream, chance = stage.upstream, random.Random(7)
    wanted: Wanted = [[], [], [], []]
    if not beside:
        stage.jobs = [{**job, "barrier_topic": job["output"]} for job in stage.jobs]
    append(stage, 1_500, chance, wanted)
    with stage.running() as run:
        run.reach(upstream.barrier())
        append(stage, 200, chance, wanted)
        run.reach(upstream.barrier())
        run.reach(upstream.barrier())
        assert any(isinstance(each, InProgress) for each in run.reports[-1].progress["some"].values())
    append(stage, 200, chance, wanted)
    upstream.barrier()
    with stage.running(lanes=2) as run:
        append(stage, 20, chance, wanted)
        run.reach(upstream.barrier())
        assert any(isinstance(each, InProgress) for each in run.reports[-1].progress["some"].values())
    with stage.running(lanes=3) as run:
        run.reach(upstream.barrier())
    with stage.running(lanes=1) as run:
        run.reach(upstream.barrier(Throttle("some", None)))
        while not (run.is_complete("all") and run.is_complete("some")):
            append(stage, 20, chance, wanted)
            run.reach(upstream.barrier())
        append(stage, 100, chance, wanted)
        run.reach(upstream.barrier())
        assert all(isinstance(each, Completed) for each in run.reports[-1].progress["some"].values())
    for number in range(2):
        report = stage.verify(number)
        assert report.clean, report
        assert (report.parts, report.vnode_count) == ("partitions", 4)
    every, some = (sent(stage, stage.config().jobs[number].output) for number in range(2))
    assert every == [
        [(key, {"id": row[0], "region": row[1], "amount": f"{row[2]}.00"}) for key, row in part]
        for part in wanted
    ]
    assert some == [
        [(key, {"amount": f"{row[2]}.00", "id": row[0]}) for key, row in part if row[2] >= 100]
        for part in wanted
    ]


def test_lanes_beyond_the_partitions_are_refused_and_none_are_taken_by_default(set_up: SetUp) -> None:
    stage = set_up(ALL, table=EVENTS, partitions=2, lanes=3, beside=True, upstream_type=AppendUpstream)
    append(stage, 20, random.Random(1), [[], []])
    with stage.running(lanes=None) as run:
        run.reach(stage.upstream.barrier())
        assert run.service.config.lanes in (1, 2)
    error = stage.fails(ConfigError, Code.RESCALE_REFUSED)
    assert error.found == "3 lanes, where 1 to 2 can have a share"


def test_nothing_is_kept_of_a_row_and_null_values_are_counted(set_up: SetUp) -> None:
    stage = set_up(ALL, table=EVENTS, partitions=3, lanes=3, beside=True, upstream_type=AppendUpstream)
    upstream = stage.upstream
    append(stage, 100, random.Random(1), [[], [], []])
    with stage.running() as run:
        run.reach(upstream.barrier())
        before = sum(report.ignored for report in run.reports)
        for partition in (0, 1, 1):
            upstream.send(partition, b"k", None)
        run.reach(upstream.barrier())
        stage.finish(run, "all")
        assert sum(report.ignored for report in run.reports) == before + 3
    config = stage.config()
    view = StateReader(Storage(str(config.state)), config.table).read()
    assert (view.rows_stored, any(job.name == "all" for job in view.jobs)) == (0, True)
    assert not list((stage.folder / "state" / "replica").rglob("*b.parquet")), "files of rows"
    assert stage.verify().clean


def test_a_record_at_fault_stops_the_service_or_is_parked_with_its_key(set_up: SetUp) -> None:
    stage = set_up(ALL, SOME, table=EVENTS, partitions=3, lanes=3, upstream_type=AppendUpstream)
    upstream = stage.upstream
    append(stage, 50, random.Random(2), [[], [], []])
    with stage.running() as run:
        stage.finish(run, "all", "some")
    faulty = [(upstream.send(2, key, b'{"id":"x"}'), key) for key in (None, b"k")]
    faulty.append((upstream.send(2, None, b""), None))
    append(stage, 50, random.Random(4), [[], [], []])
    upstream.barrier()
    stage.fails(InputError, Code.JSON_MALFORMED, f"{upstream.name}-2@{faulty[0][0]}")
    with stage.running(on_bad_record="park") as run:
        run.reach(upstream.barrier())
    for number, job in enumerate(stage.config().jobs):
        [letters] = records(upstream.kafka, job.dead_letters)
        assert [(letter.key(), header_of(letter, CODE_HEADER)) for letter in letters] == [
            (key, b"JSON_MALFORMED") for _, key in faulty
        ]
        stage.assert_lawful(number)


def test_jobs_of_other_kinds_are_refused_when_they_are_added(set_up: SetUp) -> None:
    stage = set_up(ALL, table=EVENTS, partitions=3, lanes=3, beside=True, upstream_type=AppendUpstream)
    upstream = stage.upstream
    others = [
        {"name": "other", "output": "other", **keys} for keys in ({}, {"format": "append"}, {"read": "topic"})
    ]
    with stage.running() as run:
        for each in others:
            run.reach(upstream.barrier(Add(json.dumps(each))))
            [report] = run.reports[-1].outcome.reports
            assert report.refused == Code.JOB_INVALID
        assert [job.name for job in run.reports[-1].outcome.jobs] == ["all"]
    stage.jobs = [*stage.jobs, others[0]]
    with pytest.raises(ConfigError, match="needs a table with a primary key"):
        stage.config()


def test_an_output_is_the_upstream_of_a_second_service(set_up: SetUp) -> None:
    first = set_up(
        {**ALL, "filter": "id > 0"}, table=EVENTS, partitions=3, lanes=3, upstream_type=AppendUpstream
    )
    output = first.jobs[0]["output"]
    second = set_up(SOME, table=EVENTS, partitions=3, lanes=3, upstream_type=AppendUpstream)
    second.upstream.name = output
    second.upstream.sections = {
        "barrier_topic": f"{output}.barriers",
        "control_topic": f"{output}.control",
        "upstream": {"topic": output, "format": "append"},
    }
    append(first, 300, random.Random(5), [[], [], []])
    with first.running() as run:
        run.reach(first.upstream.barrier())
        run.reach(first.upstream.barrier())  # the second batch is the one that opens the output
        with second.running() as cascaded:
            while not cascaded.is_complete("some"):
                append(first, 20, random.Random(6), [[], [], []])
                run.reach(barrier := first.upstream.barrier())
                cascaded.reach(barrier)
    assert first.verify().clean
    assert second.config().upstream_format == AppendFormat()
    report = second.verify()
    assert report.clean, report
    assert report.snapshot_rows > 0


def test_rows_in_avro_go_out_by_a_registry_through_a_new_schema(set_up: SetUp) -> None:
    encoding = {"encoding": "avro-registry"}
    jobs = {**ALL, **encoding}, {**SOME, **encoding, "rate_limit": None}
    later = {"region": {"type": "string", "fill": None}, "amount": {"type": "decimal(18,2)", "fill": None}}
    declared = {**EVENTS, "columns": {"id": "bigint", **later}}
    stage = set_up(*jobs, table=declared, partitions=3, lanes=3, beside=True, upstream_type=AppendUpstream)
    upstream, chance = stage.upstream, random.Random(8)
    fields = [{"name": "id", "type": "long"}, {"name": "region", "type": ["null", "string"]}]
    schemas = [{"type": "record", "name": "Event", "fields": fields[:count]} for count in (1, 2)]
    with FakeRegistry().serving() as registry:
        upstream.form = {"format": "append", **encoding}  # type: ignore[misc]
        beside = {"registry": {"url": registry.url}, "barrier_topic": upstream.topics.barriers}
        upstream.sections = {**beside, "table": declared}

        def write(schema: dict[str, Any], count: int) -> None:
            number, parsed = registry.register("any", schema), fastavro.parse_schema(schema)
            for _ in range(count):
                out = BytesIO()
                fastavro.schemaless_writer(out, parsed, {"id": chance.randrange(3), "region": "EU"})
                data = frame(number) + out.getvalue()
                upstream.send(chance.randrange(3), chance.choice(KEYS), data)
            upstream.send(0, b"k", None)

        stage.jobs = [{**job, "filter": None, "columns": ["region", "id"]} for job in stage.jobs]
        write(schemas[0], 60)
        with stage.running() as run:
            run.reach(upstream.barrier())
            write(schemas[1], 60)
            stage.finish(run, "all", "some")
            write(schemas[1], 10)
            run.reach(upstream.barrier())
        config = stage.config()
        asked = config.upstream_format.with_schemas(AskedSchemas(Registry(config.registry)))
        for number, job in enumerate(config.jobs):
            assert list(registry.subjects[f"{job.output}-value"])
            assert f"{job.output}-key" not in registry.subjects
            report = stage.verify(number, formats=(asked, known_jobs(config)[job.name].format))
            assert report.clean, report
            assert report.output_records > 130


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
        run.reach(upstream.barrier())
        stage.finish(run, "all")
        assert "offsets 0, 4" in str(run.service.vitals.start)
    assert [line["offsets"] for line in logs if line["event"] == "starts_at"] == [[0, 4]]
    remove_beginning(bootstrap, upstream.name, 6, partition=1)  # what was read may go
    with stage.running() as run:
        upstream.append((12, "EU", Decimal(50)), b"k", 0)
        wanted[0].append(12)
        run.reach(upstream.barrier())
        stage.finish(run, "all")
        assert "offsets 0, 4" in str(run.service.vitals.start)
    found = records(upstream.kafka, stage.config().jobs[0].output)
    assert [[json.loads(message.value() or b"")["id"] for message in part] for part in found] == wanted
