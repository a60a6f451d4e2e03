"""Jobs made, halted, limited and ended while the service runs, by the commands that a user types."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from confluent_kafka import Producer

from schemas.records import BARRIER_HEADER
from streaming.cli.app import main
from streaming.cli.jobs.status import StatusExit
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic, partitions_of
from streaming.runtime.paths import CONFIG_VARIABLE
from tests.kit.real import Run, SetUp, Stage, records

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """`say(stage, "pause", "copy")`: exit status, standard output, standard error; without the service's log lines."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())

    def run(stage: Stage, *words: str) -> tuple[int, str, str]:
        file = stage.folder / "config.yaml"
        file.write_text(json.dumps(stage.declared(barriers="inject", barrier_interval="100ms")))
        capsys.readouterr()
        status = main([words[0], *words[1:], "--config", str(file)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def seen(say: Say, stage: Stage, job: str) -> dict[str, Any]:
    status, out, err = say(stage, "status", job, "--json")
    assert status in (0, StatusExit.BEHIND), err
    found: dict[str, Any] = json.loads(out)["jobs"][0]
    return found


def fill(kafka: KafkaSettings, topic: str) -> str:
    create_topic(kafka, topic, 2)
    producer = Producer(kafka.producer())
    producer.produce(topic, b"somebody's", partition=0)
    assert producer.flush(30) == 0
    return topic


def refused(answer: tuple[int, str, str], code: str, status: int) -> bool:
    return (answer[0], answer[1], answer[2].split()[0].rstrip(":")) == (status, "", code)


def test_what_cannot_be_is_named_at_the_command_and_nothing_is_sent(set_up: SetUp, say: Say) -> None:
    stage = set_up({"name": "copy", "output_partitions": 2})
    output = stage.config().jobs[0].output
    assert refused(say(stage, "list"), "STATE_PATH_INVALID", 6)
    stage.upstream.put((1, "EU", None, None))
    with stage.running(barriers="inject", barrier_interval="100ms") as run:
        run.until(lambda: run.is_complete("copy"))
        assert json.loads(say(stage, "status", "--json")[1])["rows_stored"] == 1
        filled = fill(stage.upstream.kafka, f"{output}-filled")
        free = ("--output", f"{output}-free", "--output-partitions", "2")
        said = say(stage, "create", "--name", "copy", *free)
        assert refused(said, "JOB_EXISTS", 2)
        said = say(stage, "create", "--name", "other", "--output", output)
        assert refused(said, "JOB_EXISTS", 2)
        said = say(stage, "create", "--name", "other", "--output", filled, "--output-partitions", "2")
        assert refused(said, "OUTPUT_TOPIC_MISMATCH", 5)
        said = say(stage, "create", "--name", "other", "--output", filled, "--output-partitions", "4")
        assert refused(said, "OUTPUT_TOPIC_MISMATCH", 5)
        said = say(stage, "create", "--name", "other", "--output", f"{output}-3", "--output-partitions", "3")
        assert refused(said, "JOB_INVALID", 2)
        said = say(stage, "create", "--name", "other", *free, "--filter", "sleep(3)")
        assert refused(said, "EXPRESSION_NOT_ALLOWED", 2)
        for command in (["pause"], ["resume"], ["throttle", "7"], ["drop"], ["status"]):
            said = say(stage, command[0], "copi", *command[1:])
            assert refused(said, "JOB_UNKNOWN", 2)
        status, out, err = say(stage, "plan", "--name", "other", *free, "--filter", "id > 5")
        assert (status, out.splitlines()[-1]) == (0, "nothing is in its way"), err
        assert "1 rows" in out
        status, out, _ = say(stage, "plan", "--name", "copy", "--output", filled, "--output-partitions", "4")
        assert (status, out.count("warning: ")) == (0, 2)
        assert refused(say(stage, "pause"), "USAGE", 2)
        assert refused(say(stage, "pause", "copy", "--all"), "USAGE", 2)
        assert refused(say(stage, "throttle", "copy", "many"), "USAGE", 2)
        _, out, _ = say(stage, "list", "--json")
        assert [json.loads(line)["job"] for line in out.splitlines()] == ["copy"]
        assert not any(report.outcome.reports for report in run.reports)


def test_a_job_is_made_controlled_and_ended_while_another_goes_on(
    set_up: SetUp, say: Say, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = set_up(
        {"name": "first"}, {"name": "second", "columns": ["id"], "filter": "id > 10", "rate_limit": 0}
    )
    first, second = stage.config().jobs
    stage.jobs = stage.jobs[:1]
    for number in range(300):
        stage.upstream.put((number, "EU", None, None))
    with stage.running(barriers="inject", barrier_interval="100ms") as run:
        run.until(lambda: run.is_complete("first"))
        options = ("--columns", "id", "--filter", "id > 10", "--rate-limit", "0")
        status, out, err = say(stage, "create", "--name", "second", "--output", second.output, *options)
        assert (status, "starts at barrier" in out) == (0, True), err
        assert seen(say, stage, "second")["state"] == "limited to 0"
        assert say(stage, "throttle", "second", "20")[0] == 0
        run.until(lambda: _read(run, "second") > 0)
        assert say(stage, "pause", "second")[0] == 0
        assert seen(say, stage, "second")["state"] == "paused"
        paused_at = _read(run, "second")
        stage.upstream.put((7_000, "US", None, None))
        epochs = len(run.reports)
        run.until(lambda: len(run.reports) > epochs + 2)
        assert _read(run, "second") == paused_at
        assert say(stage, "resume", "--all")[0] == 0
        assert say(stage, "throttle", "second", "unlimited")[0] == 0
        run.until(lambda: run.is_complete("second"))
        assert seen(say, stage, "second")["share"] == 1.0
        monkeypatch.setenv(CONFIG_VARIABLE, str(stage.folder / "config.yaml"))
        assert main(["verify", "--job", "second"]) == 0
        capsys.readouterr()
        assert main(["consume", "--job", "second", "--count", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["inserts"] > 289
        assert stage.verify(0).clean
        third = f"{first.output}-third"
        assert say(stage, "create", "--name", "third", "--output", third, "--output-partitions", "4")[0] == 0
        assert refused(say(stage, "drop", "third", "--delete-topics", "--no-wait"), "USAGE", 2)
        status, out, err = say(stage, "drop", "third", "--delete-topics")
        assert (status, third in out.partition("; deleted ")[2]) == (0, True), err
        assert partitions_of(stage.upstream.kafka, third) is None
        status, out, err = say(stage, "drop", "first")
        assert (status, "drop first: since barrier" in out) == (0, True), err
        stage.upstream.put((7_001, "US", None, None))
        epochs = len(run.reports)
        run.until(lambda: len(run.reports) > epochs + 2)
        assert [json.loads(line)["job"] for line in say(stage, "list", "--json")[1].splitlines()] == [
            "second"
        ]
    ends = {
        dict(part[-1].headers() or [])[BARRIER_HEADER] for part in records(stage.upstream.kafka, first.output)
    }
    assert len(ends) == 1
    # The service has ended: nothing is sent, although the barriers are others' and go on.
    answer = say(stage, "pause", "second")
    assert refused(answer, "NOT_SERVED", 7)
    assert "nothing was sent" in answer[2]
    stage.jobs = [{"name": "second", "output": second.output, "columns": ["id"], "filter": "id > 10"}]
    assert stage.verify(0).clean


def _read(run: Run, job: str) -> int:
    return sum(report.snapshot_rows.get(job, 0) for report in run.reports)


def test_an_output_begins_now_and_another_ends_once_it_is_complete_through_restarts(
    set_up: SetUp, say: Say, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = set_up({"name": "copy"})
    topic = stage.config().jobs[0].output
    now = {"name": "now", "output": f"{topic}-now", "format": "upsert", "from": "now"}
    ends = {"name": "ends", "output": f"{topic}-ends", "until": "complete", "paused": True}
    for number in range(300):
        stage.upstream.put((number, "EU", None, None))
    with stage.running(barriers="inject", barrier_interval="100ms") as run:
        run.until(lambda: run.is_complete("copy"))
        refused_form = ("--name", "now", "--output", f"{topic}-now", "--from", "now")
        assert refused(say(stage, "create", *refused_form), "JOB_INVALID", 2)
        status, out, err = say(stage, "plan", *refused_form, "--format", "upsert")
        assert (status, "nothing: it begins now" in out) == (0, True), err
        assert say(stage, "create", *refused_form, "--format", "upsert")[0] == 0
        options = ("--name", "ends", "--output", str(ends["output"]), "--until", "complete", "--paused")
        assert say(stage, "create", *options)[0] == 0
        assert (seen(say, stage, "now")["state"], seen(say, stage, "ends")["state"]) == ("live", "paused")
        stage.upstream.delete(7)
        stage.upstream.put((8, "US", None, None))
        assert say(stage, "resume", "ends")[0] == 0
        run.until(lambda: run.is_complete("ends"))
        assert seen(say, stage, "ends")["state"] == "ended"
    last = {partition[-1].offset() for partition in records(stage.upstream.kafka, str(ends["output"]))}
    stage.upstream.put((8, "EU", None, None))
    with stage.running(until_complete=True, barriers="inject", barrier_interval="100ms") as run:
        assert run.end() is None  # an output that has ended is complete
    with stage.running(barriers="inject", barrier_interval="100ms") as run:
        stage.upstream.put((9, "US", None, None))
        run.until(lambda: run.reports[-1].sent_live.get("now", 0) > 0 if run.reports else False)
        said = say(stage, "create", *options)
        assert refused(said, "JOB_EXISTS", 2)
    assert last == {
        partition[-1].offset() for partition in records(stage.upstream.kafka, str(ends["output"]))
    }
    monkeypatch.setenv(CONFIG_VARIABLE, str(stage.folder / "config.yaml"))
    stage.jobs = [stage.jobs[0], now, ends]
    (stage.folder / "config.yaml").write_text(json.dumps(stage.declared(barriers="inject")))
    assert main(["verify", "--require-complete"]) == 0
    capsys.readouterr()
    assert main(["consume", "now", "--fold", "--format", "json"]) == 0
    folded = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(row["id"] for row in folded) == [8, 9]
    assert main(["consume", "ends", "--until-complete", "--count", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["inserts"] == 299
