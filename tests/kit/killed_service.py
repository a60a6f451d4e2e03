"""A service in a process of its own that is killed at a failpoint and started again, as often as a test likes."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.errors import Code
from schemas.records import Row
from schemas.settings.config import load
from schemas.table import TableSchema
from state.journal import Journal
from state.storage import Storage
from state.values.last_end import LastEnd
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.runtime.failpoints import VARIABLE
from tests.kit.folded import fold_of
from tests.kit.kafka_topics import remove_beginning
from tests.kit.process import Process
from tests.kit.real import records
from tests.kit.real_upstream import RealUpstream


class KilledService:
    """A service of an upstream, whose barriers it injects beside the data, and one job; started as often as needed."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        folder: Path,
        table: TableSchema,
        upstream_type: type[RealUpstream],
        **config: Any,
    ) -> None:
        unique = uuid.uuid4().hex[:8]
        self.kafka, self.output = KafkaSettings(broker.bootstrap), f"copy-{unique}"
        name = f"up-{unique}"
        self.upstream = upstream_type(table, self.kafka, name, 2, f"{name}.barriers")
        self.file, self._logs = folder / "config.json", folder / "logs"
        declared = {
            "kafka": {"bootstrap": broker.bootstrap},
            "upstream": {"topic": name, **self.upstream.form},
            "barrier_topic": self.upstream.topics.barriers,
            "barrier_interval": "300ms",
            "state": "state",
            "table": table.to_dict(),
            "jobs": [{"name": "copy", "output": self.output}],
            **config,
        }
        self.file.write_text(json.dumps(declared), encoding="utf-8")

    def completes(self, *options: str) -> None:
        self._ends(0, "--exit-when-complete", *options)

    def falls(self, failpoint: str, *options: str) -> None:
        self._ends(-9, *options, **{VARIABLE: f"{failpoint}:kill"})

    @contextmanager
    def runs(self, *options: str, **environment: str) -> Iterator[Process]:
        """A service that is killed at the end of the block, if it lives."""
        self.upstream.flush()
        process = Process.start(self.file, *options, BACKFILL_LOGS=str(self._logs), **environment)
        try:
            yield process
        finally:
            process.kill()

    def suspends(self) -> Code:
        """A service that suspends its table, and is stopped; the code of the fault."""
        with self.runs() as process:
            process.await_event("table_suspended")
            assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
            return Code(process.events("table_suspended")[-1]["code"])

    def _ends(self, status: int, *options: str, **environment: str) -> None:
        with self.runs(*options, **environment) as process:
            assert process.end() == status, process.lines[-5:]

    def last_end(self) -> LastEnd:
        """The last end of the service that the state has."""
        config = load(self.file)
        end = Journal(Storage(str(config.state)), config.table).last_end
        assert end is not None
        return end

    def loses_all(self) -> None:
        for partition in range(self.upstream.partitions):
            remove_beginning(self.kafka.bootstrap, self.upstream.name, -1, partition=partition)

    def changes(self) -> int:
        """Records of the output without its barriers, so far."""
        found = records(self.kafka, self.output)
        return sum(message.key() is not None for partition in found for message in partition)

    def rows(self) -> dict[Any, Row]:
        return fold_of(load(self.file), self.kafka, 0)[0]
