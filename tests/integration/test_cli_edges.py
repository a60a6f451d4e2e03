"""`produce`, `barriers` and `consume` as a user runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.records import Barrier, BarrierKind, VnodeProgress
from schemas.topics import UpstreamTopics
from streaming.cli.app import main
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import SeparateTopicTarget
from tests.kit.memory_registry import MemoryRegistry

Topic = Callable[..., str]
Capture = pytest.CaptureFixture[str]
CONFIG = """
kafka: {{bootstrap: "{bootstrap}"}}
upstream: {topic}
state: ./state
table:
  name: orders
  columns: {{id: bigint, region: string, amount: "decimal(18,2)"}}
  primary_key: [id]
  vnode_count: 2
"""


@pytest.fixture
def config(bootstrap: str, topic: Topic, tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(bootstrap=bootstrap, topic=topic(partitions=2, name="orders")))
    return path


@pytest.fixture
def registry() -> Iterator[str]:
    with MemoryRegistry().serving() as serving:
        yield serving.url


def test_an_output_that_the_service_has_yet_to_make_is_no_topic_to_create(
    config: Path, capsys: Capture
) -> None:
    config.write_text(config.read_text() + "jobs: [{name: copy, output: not-made-yet}]\n")
    assert run("consume", config, "--job", "copy") == 5
    said = capsys.readouterr().err
    assert said.startswith("TOPIC_MISSING at not-made-yet: found no output of job copy yet; ")
    assert "next: see `backfill status`" in said


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def counted(config: Path, capsys: Capture) -> dict[str, int]:
    capsys.readouterr()
    assert run("consume", config, "--count", "--format", "json") == 0
    printed: dict[str, int] = json.loads(capsys.readouterr().out)
    return printed


def test_two_runs_of_produce_make_one_legal_table_that_consume_folds(config: Path, capsys: Capture) -> None:
    for _ in range(2):
        assert run("produce", config, "--rows", 300, "--live", 0.5, "--rate", 400) == 0
    there = int(capsys.readouterr().out.splitlines()[-1].split("; ")[1].split()[0])
    assert run("consume", config, "--fold", "--format", "json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) == there
    assert run("consume", config, "--fold", "--format", "csv") == 0
    assert len(capsys.readouterr().out.splitlines()) == there + 1
    tally = counted(config, capsys)
    assert tally["inserts"] - tally["deletes"] == there


@pytest.mark.parametrize(
    "upstream",
    [
        "format: upsert, key: text",
        "format: upsert, encoding: avro-registry",
        "format: debezium, decimal: precise, time: adaptive",
    ],
)
def test_produce_takes_its_form_from_the_configuration(
    config: Path, capsys: Capture, bootstrap: str, registry: str, upstream: str
) -> None:
    text = config.read_text()
    topic = text.split("upstream: ")[1].split()[0]
    text = text.replace(f"upstream: {topic}", f"upstream: {{topic: {topic}, {upstream}}}")
    config.write_text(f"{text}registry: {{url: {registry}}}\n")
    for _ in range(2):
        assert run("produce", config, "--rows", 50, "--live", 0.3, "--rate", 400) == 0
    there = int(capsys.readouterr().out.splitlines()[-1].split("; ")[1].split()[0])
    capsys.readouterr()
    assert run("consume", config, "--fold", "--format", "csv") == 0  # there are no barriers yet
    assert len(capsys.readouterr().out.splitlines()) == there + 1
    assert run("consume", config, "--at", "latest") == 2
    assert "there is none yet" in capsys.readouterr().err
    beside = SeparateTopicTarget(UpstreamTopics.of(topic, barriers=f"{topic}.barriers"))
    injector = BarrierInjector(KafkaSettings(bootstrap), beside, 3_600_000)
    epoch = injector.inject_one().curr
    injector.stop()
    assert run("produce", config, "--rows", 7) == 0
    capsys.readouterr()
    for at in ("latest", epoch):
        assert run("consume", config, "--fold", "--at", at, "--format", "csv") == 0
        assert len(capsys.readouterr().out.splitlines()) == there + 1


def test_produce_says_that_a_topic_it_made_has_no_barriers(config: Path, capsys: Capture) -> None:
    new = f"new-{config.read_text().split('upstream: ')[1].split()[0]}"
    assert run("produce", config, "--topic", new, "--rows", 5, "--partitions", 2) == 0
    [line] = [line for line in capsys.readouterr().err.splitlines() if "barriers" in line]
    assert line.startswith(f"{new}: new, with 2 partitions and no barriers yet")
    assert run("produce", config, "--topic", new, "--rows", 5) == 0
    assert "no barriers" not in capsys.readouterr().err


def test_consume_prints_a_line_for_each_record_with_its_place(config: Path, capsys: Capture) -> None:
    assert run("produce", config, "--rows", 5) == 0
    capsys.readouterr()
    assert run("consume", config) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len({place for place, *_ in lines}) == 5
    assert all(op == "INSERT" and json.loads(key) == [json.loads(row)["id"]] for _, _, op, key, row in lines)


def test_barriers_run_until_they_are_named_to_stop_and_go_on_later(config: Path, capsys: Capture) -> None:
    for _ in range(2):
        there = counted(config, capsys)["barriers"]
        injecting = subprocess.Popen(
            [sys.executable, "-m", "streaming.cli.app", "barriers", str(config), "--interval", "100ms"],
            stderr=subprocess.PIPE,
            text=True,
        )
        while counted(config, capsys)["barriers"] < there + 4:
            assert injecting.poll() is None
        injecting.send_signal(signal.SIGTERM)
        assert injecting.wait(30) == 0
        injecting.communicate()
    assert run("consume", config, "--format", "json") == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    epochs = [item["epoch"] for item in printed if item["at"].split("@")[0].endswith("-0")]
    assert [item["prev"] for item in printed if item["at"].split("@")[0].endswith("-0")] == [0, *epochs[:-1]]


def test_consume_waits_until_an_output_is_made_and_every_vnode_has_finished(
    config: Path, bootstrap: str
) -> None:
    kafka, topic = KafkaSettings(bootstrap), f"late-{uuid.uuid4().hex}"
    config.write_text(config.read_text() + f"jobs: [{{name: copy, output: {topic}, output_partitions: 2}}]\n")
    producer = Producer(kafka.producer())

    def finish(vnode: int) -> None:
        progress = (VnodeProgress(vnode, None, True, 0),)
        barrier = Barrier(vnode + 1, vnode, BarrierKind.CHECKPOINT, 2, 0, progress=progress)
        header = {"barrier": barrier_header(barrier)}
        producer.produce(topic, encode_barrier(barrier), partition=vnode, headers=dict(header))
        producer.flush()

    command = [sys.executable, "-u", "-m", "streaming.cli.app", "consume", "copy", "--until-complete"]
    reading = subprocess.Popen(
        [*command, "--config", str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert reading.stdout is not None
    assert reading.stderr is not None
    assert reading.stderr.readline().startswith(f"waits: TOPIC_MISSING at {topic}: ")
    create_topic(kafka, topic, 2)
    finish(0)
    assert "BARRIER" in reading.stdout.readline()
    assert reading.poll() is None
    finish(1)
    assert reading.wait(30) == 0
    reading.communicate()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["consume", "--topic", "t"], "USAGE"),
        (["consume", "{config}", "--job", "nobody"], "JOB_UNKNOWN"),
        (["consume", "{config}", "--columns", "regoin"], "USAGE"),
        (["consume", "{config}", "--count", "--fold"], "USAGE"),
        (["consume", "{config}", "--format", "csv"], "USAGE"),
        (["consume", "{config}", "--topic", "nowhere"], "TOPIC_MISSING"),
        (["barriers", "--topic", "t"], "USAGE"),
        (["barriers", "{config}", "--interval", "5"], "USAGE"),
        (["barriers", "{config}", "--topic", "nowhere"], "TOPIC_MISSING"),
        (["produce", "{config}", "--updates-share", "0.9", "--deletes-share", "0.9"], "USAGE"),
        (["produce", "{config}", "--table", "/nowhere.yaml"], "USAGE"),
        (["create", "-c", "{config}"], "USAGE: found no --name and no --output;"),
        (["plan", "-c", "{config}", "--name", "copy"], "USAGE: found no --output;"),
        (["verify", "-c", "{config}", "both"], "NO_JOB"),
        (["verify", "{config}", "-c", "{config}"], "USAGE"),
    ],
)
def test_a_mistake_is_one_line_with_a_code(
    config: Path, capsys: Capture, arguments: list[str], code: str
) -> None:
    assert run(*(argument.format(config=config) for argument in arguments)) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(code)
