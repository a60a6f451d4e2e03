"""A sink that nobody foresaw: a model, ten lines, two entries in the registries, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from schemas.errors import ConfigError
from schemas.job import JobDefinition
from schemas.kinds.kinds import DEFAULT_SINK, SINK_KINDS, SinkConfig
from schemas.records import Barrier
from schemas.settings.config import check
from schemas.settings.limits import Limits
from streaming.kafka.clients import KafkaSettings
from streaming.sink.columns import OutputChanges, SnapshotRows
from streaming.sink.dead_letters import DeadLetter
from streaming.sink.kafka import KafkaSink
from streaming.sink.kinds import SINKS, Sinks, SinkSetup
from streaming.sink.output import Output, SinkPartition
from streaming.sink.protocol import Mark, OpenWriter, Sink, Writer
from tests.kit.tables import items, table
from tests.kit.upstream import Upstream
from tests.simulation.without_faults import without_faults

TABLE = table()
COPY = {"name": "copy", "output": "copy", "output_partitions": 2, "rate_limit": 2}
SETUP = SinkSetup(
    kafka=KafkaSettings("none"), reserved=frozenset(), limits=Limits(), parks=False, key_columns=()
)


class ToFiles(SinkConfig):
    """A file of text for each output."""

    kind: Literal["files"] = "files"
    folder: str


class Files(Sink):
    def __init__(self, config: ToFiles) -> None:
        self.folder = Path(config.folder)

    def refuse_used(self, job: JobDefinition) -> None: ...

    @property
    def open_writer(self) -> OpenWriter:
        return self.open_file

    @contextmanager
    def open_file(self, writer_id: str, timeout_ms: int) -> Iterator[Writer]:
        yield FileWriter(self.folder)


class FileWriter(Writer):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def already_sent(
        self,
        before: Mapping[SinkPartition, int | None],
        epoch: int,
        known_ends: Mapping[SinkPartition, Mark],
    ) -> bool:
        return False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.lines: list[str] = []
        yield
        with (self.folder / "copy").open("a") as file:
            file.writelines(self.lines)

    def rows(self, rows: SnapshotRows) -> None:
        self.lines += [f"+ {id_}\n" for id_ in rows.arrays["id"].to_pylist()]

    def changes(self, run: OutputChanges) -> None:
        self.lines += [f"{op} {id_}\n" for op, id_ in zip(run.ops, run.keys[0].to_pylist(), strict=True)]

    def barrier(self, output: Output, partition: int, barrier: Barrier) -> None:
        self.lines.append("barrier\n")

    def letter(self, output: Output, letter: DeadLetter) -> None: ...


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registries are all that has to be touched."""
    kinds: dict[str, Any] = SINK_KINDS
    sinks: dict[Any, Any] = SINKS
    monkeypatch.setitem(kinds, "files", ToFiles)
    monkeypatch.setitem(sinks, ToFiles, lambda config, setup: Files(config))


def declared(**more: object) -> JobDefinition:
    return JobDefinition.declare({**COPY, **more}, TABLE)


def test_every_kind_that_a_job_can_name_is_carried_out_and_has_its_name() -> None:
    assert set(SINK_KINDS.values()) == set(SINKS)
    for name, kind in SINK_KINDS.items():
        assert kind.model_fields["kind"].default == name


@pytest.mark.parametrize("sink", [None, "kafka", {"kind": "kafka"}])
def test_the_default_is_kafka_and_is_not_written_down(sink: object) -> None:
    job = declared(sink=sink)
    assert job == declared()
    assert job.sink == DEFAULT_SINK
    assert "sink" not in job.to_json()
    assert isinstance(Sinks(SETUP)(job), KafkaSink)


@pytest.mark.parametrize(
    ("sink", "fault"),
    [
        ("files", "sink.kind 'files' is not one of: kafka"),
        ({"folder": "f"}, "sink.kind None is not one of: kafka"),
        (["kafka"], "sink.kind ['kafka'] is not one of: kafka"),
        ({"kind": "kafka", "topic": "t"}, "unknown key 'sink.topic'"),
    ],
)
def test_a_kind_or_a_key_that_is_not_there_is_refused(sink: object, fault: str) -> None:
    config = {"upstream": "t", "state": "s", "table": TABLE.to_dict(), "jobs": [{**COPY, "sink": sink}]}
    with pytest.raises(ConfigError) as caught:
        check(config, path=Path("c.yaml"))
    assert fault in caught.value.found


@pytest.mark.usefixtures("files")
def test_a_kind_that_is_registered_is_kept_in_the_definition() -> None:
    job = declared(sink={"kind": "files", "folder": "f"})
    assert JobDefinition.from_json(job.to_json(), TABLE) == job
    assert declared().differences(job) == ['sink was null, is {"folder": "f", "kind": "files"}']
    assert isinstance(Sinks(SETUP)(job), Files)
    assert len(Sinks(SETUP).all_of([job, job])) == 2, "the default too"
    with pytest.raises(ConfigError, match="folder"):
        declared(sink="files")


@pytest.mark.usefixtures("files")
def test_jobs_write_to_a_new_kind_and_to_kafka_in_the_same_lanes(tmp_path: Path) -> None:
    upstream = Upstream(TABLE, 2)
    upstream.put_all(items(range(8)))
    upstream.barrier()
    upstream.put((3, 1, "other"))
    upstream.put((99, 0, "new"))
    in_topic = JobDefinition.declare({**COPY, "name": "topic", "output": "topic"}, TABLE)
    world = without_faults(upstream, declared(sink={"kind": "files", "folder": str(tmp_path)}), in_topic)
    topics = world.durable.topics
    lines = (tmp_path / "copy").read_text().split("\n")
    entries = [entry for place in topics.partitions("topic") for entry in topics.committed(place)]
    assert not topics.partitions("copy")
    assert {f"+ {id_}" for id_ in range(8)} < set(lines)
    assert lines.count("barrier") == sum(entry.barrier is not None for entry in entries)
    assert len(lines) - 1 == len(entries)
