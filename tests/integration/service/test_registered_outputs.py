"""Outputs in Avro by a schema registry: sent without it, read by its schemas, and jobs that it refuses or delays."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from io import BytesIO
from typing import Any

import fastavro
import pytest
import structlog

from schemas.avro.registered import FRAME_BYTES, framed_id
from schemas.errors import Code, ConfigError
from schemas.records import Add
from streaming.cli.app import main
from streaming.cli.jobs.served import known_jobs
from streaming.kafka.topics import partitions_of
from streaming.observe.wiring import observed
from streaming.registry.client import AskedSchemas, Registry
from tests.integration.service.test_outputs_beside import cascade
from tests.kit.real import Run, SetUp, Stage, expected, records
from tests.kit.real_upstream import RealUpstream, UpsertUpstream, version_of
from tests.kit.registry import FakeRegistry
from tests.kit.thorough import pairs

UPSERT = {"format": "upsert", "encoding": "avro-registry"}
DEBEZIUM = {"format": "debezium", "encoding": "avro-registry"}


def staged(set_up: SetUp, registry: FakeRegistry, *jobs: dict[str, Any], **how: Any) -> Stage:
    stage = set_up(*jobs, **how)
    stage.upstream.sections = {"registry": {"url": registry.url}}
    return stage


def is_lawful(stage: Stage, name: str = "copy", *, asking: bool = False) -> bool:
    config = stage.config()
    upstream = config.upstream_format
    if asking:
        upstream = upstream.with_schemas(AskedSchemas(Registry(config.registry)))
    number = [job.name for job in config.jobs].index(name)
    return stage.verify(number, formats=(upstream, known_jobs(config)[name].format)).clean


FORMS = {"debezium": DEBEZIUM, "upsert": UPSERT}
UPSTREAMS = {"full images": RealUpstream, "no rows before": UpsertUpstream}


@pytest.mark.parametrize(("upstream", "form"), pairs(UPSTREAMS, FORMS))
def test_once_its_schemas_are_registered_a_job_needs_no_registry(
    set_up: SetUp, registry: FakeRegistry, form: dict[str, Any], upstream: type[RealUpstream]
) -> None:
    stage = staged(set_up, registry, {"name": "copy", "rate_limit": 400, **form}, upstream_type=upstream)
    for number in range(600):
        stage.upstream.put(version_of(number))
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        stage.upstream.put(version_of(3, 1))
        run.reach(stage.upstream.barrier())
    asked, registry.status = len(registry.asked), 503
    stage.upstream.put(version_of(599, 2))
    stage.upstream.delete(5)
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        stage.upstream.put(version_of(1_000))
        stage.finish(run, "copy")
    assert len(registry.asked) == asked
    assert is_lawful(stage)
    output = stage.jobs[0]["output"]
    messages = [message for part in records(stage.upstream.kafka, output) for message in part]
    for half in ("key", "value"):
        [number] = registry.subjects[f"{output}-{half}"]
        schema = fastavro.parse_schema(json.loads(registry.schemas[number]["schema"]))
        for data in (getattr(message, half)() for message in messages):
            if half == "key" or data is not None:
                assert framed_id(data) == number
                stream = BytesIO(data[FRAME_BYTES:])
                fastavro.schemaless_reader(stream, schema)
                assert stream.read() == b""


def test_a_lost_state_asks_for_the_ids_again_and_goes_on_with_them(
    set_up: SetUp, registry: FakeRegistry
) -> None:
    stage = staged(set_up, registry, {"name": "copy", "rate_limit": 100, **DEBEZIUM})
    for number in range(300):
        stage.upstream.put(version_of(number))
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        run.reach(stage.upstream.barrier())
    shutil.rmtree(stage.folder / "state")
    registry.asked.clear()
    stage.upstream.put(version_of(3, 1))
    service = stage.service()
    service.rebuild = True
    run = Run(service)
    stage.finish(run, "copy")
    run.stop()
    assert any(asked.startswith("POST /subjects/") for asked in registry.asked)
    assert is_lawful(stage)
    assert all(len(versions) == 1 for versions in registry.subjects.values())


@pytest.mark.parametrize(
    "form",
    [pytest.param(UPSERT, id="upsert", marks=pytest.mark.thorough), pytest.param(DEBEZIUM, id="debezium")],
)
def test_an_output_is_the_upstream_of_a_second_service(
    set_up: SetUp, registry: FakeRegistry, form: dict[str, Any]
) -> None:
    first = staged(set_up, registry, {"name": "copy", "rate_limit": 200, **form})
    output = first.jobs[0]["output"]
    second = set_up({"name": "again", **DEBEZIUM, "filter": "note <> 'n7'"}, partitions=4)
    second.upstream.name = output
    second.upstream.sections = {
        "upstream": {"topic": output, **form},
        "barrier_topic": f"{output}.barriers",
        "control_topic": f"{output}.control",
        "registry": {"url": registry.url},
    }
    cascade(first, second)
    assert is_lawful(first)
    assert is_lawful(second, "again", asking=True)


def test_a_registry_that_is_away_delays_its_jobs_of_the_file_and_nothing_else(
    set_up: SetUp, registry: FakeRegistry
) -> None:
    stage = staged(set_up, registry, {"name": "copy", **UPSERT}, {"name": "plain"})
    registry.status = 503
    stage.upstream.put(version_of(1))
    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        stage.finish(run, "plain")
        assert "copy" not in {job.state.name for report in run.reports for job in report.plan.jobs}
        assert partitions_of(stage.upstream.kafka, stage.jobs[0]["output"]) is None
        registry.status = None
        stage.upstream.put(version_of(2))
        stage.finish(run, "copy")
        assert not any(report.outcome.reports for report in run.reports)
    assert is_lawful(stage)
    assert is_lawful(stage, "plain")


def test_a_job_of_the_file_whose_schemas_are_refused_ends_the_start(
    set_up: SetUp, registry: FakeRegistry
) -> None:
    stage = staged(set_up, registry, {"name": "copy", **DEBEZIUM})
    output = stage.jobs[0]["output"]
    registry.register(f"{output}-value", "string")
    registry.incompatible.add(f"{output}-value")
    stage.upstream.put(version_of(1))
    run = Run(stage.service())
    run.reach(stage.upstream.barrier())
    stage.upstream.barrier()
    expected(run.end(), ConfigError, Code.OUTPUT_SCHEMA_INCOMPATIBLE, f"subject {output}-value")
    assert partitions_of(stage.upstream.kafka, output) is None
    assert f"{output}-key" not in registry.subjects


def test_a_request_whose_schemas_are_refused_changes_nothing(set_up: SetUp, registry: FakeRegistry) -> None:
    stage = staged(set_up, registry, {"name": "plain"})
    output = f"{stage.upstream.name}-late"
    late = Add(json.dumps({"name": "late", "output": output, "output_partitions": 2, **UPSERT}))
    registry.register(f"{output}-value", "string")
    stage.upstream.put(version_of(1))

    def refused_with(run: Run, code: Code) -> None:
        before = len(run.reports)
        run.reach(stage.upstream.barrier(late))
        run.reach(stage.upstream.barrier())
        codes = [report.refused for each in run.reports[before:] for report in each.outcome.reports]
        assert codes == [None, code]
        assert partitions_of(stage.upstream.kafka, output) is None

    with stage.running() as run:
        run.reach(stage.upstream.barrier())
        registry.incompatible.add(f"{output}-value")
        refused_with(run, Code.OUTPUT_SCHEMA_INCOMPATIBLE)
        registry.status = 503
        refused_with(run, Code.REGISTRY_UNREACHABLE)
        registry.status = 403
        refused_with(run, Code.REGISTRY_REFUSED)
        registry.status = None
        registry.incompatible.clear()
        run.reach(stage.upstream.barrier(late))
        stage.finish(run, "late")
    stage.jobs = [*stage.jobs, json.loads(late.job)]
    assert is_lawful(stage, "late")


def test_commands_show_the_schemas_and_refuse_before_anything_is_sent(
    set_up: SetUp, registry: FakeRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    stage = staged(set_up, registry, {"name": "plain"})
    output = f"{stage.upstream.name}-made"
    file = stage.folder / "config.yaml"
    over: dict[str, Any] = {"barriers": "inject", "barrier_interval": "100ms"}
    file.write_text(json.dumps(stage.declared(**over)))
    made = ["--name", "made", "--output", output, "--format", "debezium", "--encoding", "avro-registry"]

    def say(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([*words, "--config", str(file)])
        said = capsys.readouterr()
        return status, said.out, said.err

    stage.upstream.put(version_of(1))
    with stage.running(**over) as run:
        run.until(lambda: run.is_complete("plain"))
        status, out, err = say("plan", *made, "--output-partitions", "4", "--schema")
        assert (status, f"{output}-value (new)" in " ".join(out.split())) == (0, True), err
        assert '"Envelope"' in out
        registry.register(f"{output}-key", "string")
        registry.incompatible.add(f"{output}-key")
        status, out, _ = say("plan", *made, "--output-partitions", "4")
        assert (status, "warning: OUTPUT_SCHEMA_INCOMPATIBLE" in out) == (0, True)
        status, out, err = say("create", *made)
        assert (status, out, err.split()[0]) == (2, "", "OUTPUT_SCHEMA_INCOMPATIBLE")
        registry.incompatible.clear()
        registry.status = 403
        status, out, err = say("create", *made)
        assert (status, out, err.split()[0]) == (7, "", "REGISTRY_REFUSED")
        assert not any(report.outcome.reports for report in run.reports)
        registry.status = None
        status, out, err = say("create", *made)
        assert (status, "starts at barrier" in out) == (0, True), err
        stage.upstream.put(version_of(2))
        run.until(lambda: run.is_complete("made") and sum(report.changes for report in run.reports) == 2)
        [_, listed] = (json.loads(line) for line in say("list", "--json")[1].splitlines())
        kept = {half: registry.subjects[f"{output}-{half}"][-1] for half in ("key", "value")}
        assert listed["schema_ids"] == kept
        status, out, err = say("verify", "--job", "made")
        assert status == 0, out + err
    elsewhere = {"state": "elsewhere", "jobs": [listed["definition"]], **over}
    file.write_text(json.dumps(stage.declared(**elsewhere)))
    status, out, err = say("consume", "--job", "made", "--fold")  # as on a machine without the state
    assert (status, out.count("EU")) == (0, 2), err


def test_the_api_registers_or_refuses_before_anything_is_sent(set_up: SetUp, registry: FakeRegistry) -> None:
    stage = staged(set_up, registry, {"name": "plain"})
    output = f"{stage.upstream.name}-made"
    stage.upstream.put(version_of(1))
    over: dict[str, Any] = {
        "barriers": "inject",
        "barrier_interval": "100ms",
        "http": {"listen": "127.0.0.1:0"},
    }
    service = stage.service(**over)
    run = Run(service)

    def asked(address: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{address}{path}", data, headers)  # noqa: S310 (our own)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (our own)
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())

    with observed(service, "secret") as address:
        assert address is not None
        run.until(lambda: run.is_complete("plain"))
        made = {"name": "made", "output": output, "output_partitions": 4, **UPSERT}
        registry.register(f"{output}-key", "string")
        registry.incompatible.add(f"{output}-key")
        assert asked(address, "/api/v1/jobs", made)["code"] == "OUTPUT_SCHEMA_INCOMPATIBLE"
        registry.incompatible.clear()
        assert "wanted" in asked(address, "/api/v1/jobs", made)
        run.until(lambda: run.is_complete("made"))
        forms = {job["name"]: job["form"] for job in asked(address, "/api/v1/status")["jobs"]}
    run.stop()
    assert forms == {"plain": "change avro", "made": "upsert avro-registry"}
