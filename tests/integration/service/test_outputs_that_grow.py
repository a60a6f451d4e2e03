"""Outputs get the columns that their table gets: in JSON, in Connect's frame and by a registry."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from schemas.avro.registered import framed_id
from schemas.errors import BackfillError, Code
from schemas.position import Key
from schemas.records import Barrier, Row
from streaming.cli.app import main
from streaming.cli.jobs.served import known_jobs
from streaming.cli.topics.target import Broker, output_target
from streaming.reading.topic import GrowingTopic, RecordStream, TableFold
from streaming.runtime import failpoints
from tests.integration.service.test_columns_by_schema import SIZE, TABLE, TIER, GrowingFrames, grown
from tests.kit.real import Run, SetUp, Stage, records
from tests.kit.registry import FakeRegistry

ANNOUNCED = {"tier": {"type": "string", "fill": "basic"}, "size": {"type": "int", "fill": None}}
FORMS = {
    "plain": {"format": "upsert", "encoding": "json"},
    "framed": {"format": "debezium", "encoding": "json-schema"},
    "avro": {"format": "debezium", "encoding": "avro-registry"},
    "refused": {"format": "upsert", "encoding": "avro-registry"},
}


class Follower:
    """A reader of an output, from before it gets columns on."""

    def __init__(self, stage: Stage, name: str) -> None:
        kafka = stage.upstream.kafka
        target = output_target(stage.folder / "config.yaml", Broker(), None, None, name, None)
        self.stream = RecordStream(target.columns, target.key_columns, target.form, (), target.grown)
        self.topic = GrowingTopic(kafka, target.topic, target.barriers, self.stream)
        self.fold = TableFold(target.form.rows_before, (), self.stream.whole)
        self.announced: dict[str, Any] = {}

    def read_on(self) -> dict[Key, Row]:
        for record in self.topic.new():
            if isinstance(record.body, Barrier):
                self.announced |= {name: json.loads(text) for name, text in record.body.columns}
            elif record.key is not None:
                self.fold.apply(record.key, record.body, record.where)
        return {key: self.stream.whole(row) for key, row in self.fold.rows.items()}


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main([*words]) in (0, 12), capsys.readouterr()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def comes_back(registry: FakeRegistry, troubles: list[Code], problem: BackfillError) -> None:
    troubles.append(problem.code)
    registry.status = None


def assert_read_afterwards(
    stage: Stage, registry: FakeRegistry, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream, outputs = stage.upstream, {job["name"]: job["output"] for job in stage.jobs}
    # 2. The law holds, by the state and without it, with a file that is ahead.
    assert main(["verify", "--config", str(file), "--require-complete"]) == 0, capsys.readouterr()
    folded = lines(capsys, "consume", "plain", "--config", str(file), "--fold", "--json")
    assert {row["id"]: tuple(row.values()) for row in folded} == {
        key[0]: row for key, row in upstream.rows.items()
    }
    [status] = lines(capsys, "status", "--config", str(file), "--json")
    assert {job["job"]: job["columns_refused"] for job in status["jobs"]} == {
        **dict.fromkeys(("plain", "framed", "avro"), None),
        "refused": Code.OUTPUT_SCHEMA_REFUSED,
    }
    # 3. What consumers without this project see.
    [framed] = [each for part in records(upstream.kafka, outputs["framed"]) for each in part][-1:]
    payload = json.loads(framed.value() or b"")
    [after] = [each for each in payload["schema"]["fields"] if each["field"] == "after"]
    assert [(each["field"], each["optional"]) for each in after["fields"]][-2:] == [
        ("tier", True),
        ("size", True),
    ]
    assert list(payload["payload"]["after"]) == ["id", "note", "tier", "size"]
    subjects = registry.subjects
    assert [len(subjects[f"{outputs['avro']}-{half}"]) for half in ("key", "value")] == [1, 2]
    assert [len(subjects[f"{outputs['refused']}-{half}"]) for half in ("key", "value")] == [1, 1]
    values = [each.value() for part in records(upstream.kafka, outputs["avro"]) for each in part]
    assert {framed_id(value) for value in values if value} == set(subjects[f"{outputs['avro']}-value"])
    shutil.rmtree(stage.folder / "state")
    stage.jobs = [job for job in stage.jobs if job["name"] != "refused"]
    upstream.table = grown()
    file.write_text(json.dumps(stage.declared()))
    assert main(["verify", "--config", str(file)]) == 0, capsys.readouterr()
    service = stage.service()
    service.rebuild = True
    run = Run(service)
    run.reach(upstream.barrier())
    run.stop()
    assert main(["verify", "--config", str(file)]) == 0, capsys.readouterr()
    made_anew = known_jobs(stage.config())
    assert {(len(job.columns), job.first_width) for job in made_anew.values()} == {(4, 2)}


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(None, id=""),
        pytest.param("taken-over@2:raise", id="taken-over", marks=pytest.mark.thorough),
        pytest.param("fenced@2:raise", id="fenced", marks=pytest.mark.thorough),
    ],
)
def test_outputs_get_a_column_in_the_middle_of_their_backfill(
    set_up: SetUp,
    registry: FakeRegistry,
    capsys: pytest.CaptureFixture[str],
    crash: str | None,
) -> None:
    jobs = [{"name": name, "rate_limit": 20, "new_columns": "send", **form} for name, form in FORMS.items()]
    stage = set_up(*jobs, table=TABLE, upstream_type=GrowingFrames)
    upstream = stage.upstream
    assert isinstance(upstream, GrowingFrames)
    upstream.attach(registry)
    upstream.sections, troubles = {"registry": {"url": registry.url}}, list[Code]()
    how: dict[str, Any] = {"table": TABLE}
    file = stage.folder / "config.yaml"
    file.write_text(json.dumps(stage.declared(**how)))
    outputs = {job["name"]: job["output"] for job in stage.jobs}
    for number in range(60):
        upstream.put((number, f"n{number}"))
    run = stage.begun(crash, **how)
    run.reach(upstream.barrier())
    followers = {name: Follower(stage, name) for name in ("plain", "framed", "avro")}
    with ExitStack() as open_topics:
        for follower in followers.values():
            open_topics.enter_context(follower.topic)
            follower.read_on()
        # 1. The table gets two columns; one registry subject refuses them.
        registry.incompatible.add(f"{outputs['refused']}-value")
        upstream.rows = {key: (*row, "basic", None) for key, row in upstream.rows.items()}
        for number in range(0, 60, 3):
            upstream.register([])
            upstream.rows[(number,)] = (number, "old", "basic", None)
            upstream.put((number, "old", "basic", None))
            upstream.register([TIER, SIZE])
            upstream.put((number + 1, "new", None if number else "iron", number))
        upstream.delete(4)
        if crash is None:  # nothing is decided while the registry is away
            registry.status = 503
            run.service.on_trouble = partial(comes_back, registry, troubles)
        last = upstream.barrier()
        if crash is not None:
            assert isinstance(run.end(), failpoints.Provoked)
            run = Run(stage.service(**how))
        run.reach(last)
        assert troubles == [Code.REGISTRY_UNREACHABLE] * (crash is None)
        assert run.service.vitals.last_end is None
        stage.finish(run)
        registry.status = 503  # a job that has its ids needs none
        upstream.put((2, "x", "gold", 2))
        run.reach(upstream.barrier())
        run.stop()
        registry.status = None
        for name, follower in followers.items():
            assert follower.read_on() == upstream.rows, name
            assert follower.announced == ANNOUNCED, name
    assert_read_afterwards(stage, registry, file, capsys)
