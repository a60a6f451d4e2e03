"""Topics and states of the table of mistakes, made once each."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from confluent_kafka import Producer

from schemas.avro.registered import frame
from schemas.job import JobDefinition
from schemas.records import Barrier, BarrierKind
from schemas.table import TableSchema, declare
from state.journal import Journal
from state.progress_table import ProgressTable
from state.replica import Replica
from state.storage import Storage
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.bound_table import BoundTable
from state.values.plan import BatchPlan, JobPlan, JobState
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.service.presence import Presence
from streaming.source.upstream_checks import UpstreamIdentity, binding
from tests.kit.kafka_topics import remove_beginning

PARTITIONS, ROWS = 2, 8
TABLE = {
    "name": "customers",
    "columns": {"id": "bigint", "email": "string", "created": "timestamp"},
    "primary_key": ["id"],
    "vnode_count": 4,
}
_OWNER = "process 1 on elsewhere"
_INSTANT = "2026-11-29T12:00:00Z"
_MICROS = 1_796_126_400_000_000
Record = tuple[bytes | None, bytes | None]


def row(number: int, created: object = _INSTANT) -> dict[str, object]:
    return {"id": number, "email": f"{number}@example.org", "created": created}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _rows() -> list[Record]:
    return [(_json({"id": number}), _json(row(number))) for number in range(ROWS)]


def _events(created: int = _MICROS) -> list[Record]:
    source = {"connector": "none", "name": "shop", "db": "shop"}
    return [
        (
            _json({"id": number}),
            _json({"op": "c", "before": None, "after": row(number, created), "source": source, "ts_ms": 1}),
        )
        for number in range(ROWS)
    ]


RECORDS: dict[str, Callable[[], list[Record]]] = {
    "rows": _rows,
    "prefixed": _rows,
    "compacted": list,
    "empty": list,
    "trimmed": _rows,
    "text-keys": lambda: [(str(number).encode(), _json(row(number))) for number in range(ROWS)],
    "events": _events,
    "millis": lambda: _events(_MICROS // 1_000),
    "framed": lambda: [(_json({"id": number}), frame(7) + b"\x02") for number in range(ROWS)],
    "garbage": lambda: [(_json({"id": number}), b"\xff\x00 no JSON") for number in range(ROWS)],
    "one-bad": lambda: [*_rows(), (_json({"id": 99}), b"{")],
}
"""Records of each kind of topic, all of them in partition 0."""
OF_EVENTS = ("events", "millis")


@dataclass(frozen=True)
class Topics:
    """Topics on one broker; those of each kind are made when a row first names them."""

    bootstrap: str

    @property
    def kafka(self) -> KafkaSettings:
        return KafkaSettings(self.bootstrap)

    @cache  # noqa: B019  # one instance a module
    def topic(self, kind: str) -> str:
        """A topic with the records of a kind."""
        unique = f"{kind}-{uuid.uuid4().hex[:8]}"
        name = f"shop.public.{unique}" if kind == "prefixed" else unique
        config = {"cleanup.policy": "compact"} if kind == "compacted" else None
        create_topic(self.kafka, name, PARTITIONS, config=config)
        self.send(name, RECORDS[kind]())
        if kind == "trimmed":
            remove_beginning(self.bootstrap, name, 1)
        return name

    @cache  # noqa: B019  # likewise
    def further(self, kind: str) -> str:
        """A topic that a job or barriers may not use."""
        name = f"{kind}-{uuid.uuid4().hex[:8]}"
        config = {"retention.ms": "1000000"} if kind == "short" else None
        create_topic(self.kafka, name, 3 if kind == "three" else PARTITIONS, config=config)
        if kind == "filled":
            self.send(name, [(b"k", b"v")])
        return name

    def send(self, topic: str, records: list[Record]) -> None:
        producer = Producer(self.kafka.producer())
        for key, value in records:
            producer.produce(topic, value, key, 0)
        assert producer.flush(30) == 0


@contextmanager
def state_of(kind: str, folder: Path, topic: str, kafka: KafkaSettings) -> Iterator[None]:
    """A state of a kind in `folder/state`; its owner lives while the block runs, if it is `owned`."""
    if kind in ("file", "below-file"):
        (folder / ("state" if kind == "file" else "file")).write_text("mine")
    if kind in ("", "file", "below-file"):
        yield
        return
    table, storage = declare(TABLE), Storage(str(folder / "state"), synced=False)
    storage.prepare()
    if kind == "no-journal":
        Replica(storage, table)
        ProgressTable(storage, table)
        yield
        return
    found = UpstreamIdentity.of(kafka, topic)
    bound = {
        "of-other-topic": replace(found, topic="elsewhere"),
        "of-other-id": replace(found, id="AAAAAAAAAAAAAAAAAAAAAA"),
        "of-more-partitions": replace(found, partitions=found.partitions + 1),
        "never-read": replace(found, partitions=1),
    }.get(kind, found)
    journal = Journal(storage, table)
    journal.take_over(_OWNER, binding(BoundTable.first(table, None), bound))
    if kind in ("with-job", "of-more-partitions"):
        Replica(storage, table)
        ProgressTable(storage, table)
        journal.write_plan(_plan(table))
    with Presence(storage).shown(_OWNER) if kind == "owned" else nullcontext():
        yield


def _plan(table: TableSchema) -> BatchPlan:
    """A first batch with one job."""
    job = JobDefinition.declare({"name": "copy", "output": "copied"}, table)
    barrier = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (0,) * PARTITIONS, in_data=False)
    jobs = (JobPlan(JobState(job, 1)),)
    return BatchPlan(None, (barrier,), (0,) * PARTITIONS, ReplicaVersion(0, 0, 0), 1, jobs)
