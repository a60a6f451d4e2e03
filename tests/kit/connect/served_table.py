"""A table that a connector reads, and a service as a process, which is killed and started again."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import StateError
from schemas.records import Barrier
from schemas.settings.config import ServiceConfig
from state.storage import Storage
from state.values.last_end import LastEnd
from streaming.cli.app import main
from streaming.control.known_table import as_known
from streaming.control.state_view import StateReader
from tests.kit.connect.source import Source, TableServer
from tests.kit.folded import epoch_of
from tests.kit.process import Process
from tests.kit.real import Stage, await_condition


@dataclass
class ServedTable:
    """The table, its connector, and a service as a process, which is killed and started again."""

    server: TableServer
    source: Source
    stage: Stage
    process: Process | None = None

    @property
    def file(self) -> Path:
        return self.stage.folder / "config.json"

    @property
    def known(self) -> ServiceConfig:
        """The configuration with the table that the state has by now."""
        return as_known(self.stage.config())

    def sql(self, statement: str) -> None:
        with self.server.connect(self.source.name) as session:
            session.execute(statement)

    def start(self) -> None:
        self.file.write_text(json.dumps(self.stage.declared(on_table_fault="suspend")), encoding="utf-8")
        self.process = Process.start(self.file)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        assert self.process.end() == -9

    def barrier(self) -> Barrier:
        """One behind everything that is committed now."""
        self.source.await_all()
        return self.stage.upstream.barrier()

    def reach(self) -> None:
        """Wait until all outputs have what is committed now."""
        kafka, barrier = self.stage.upstream.kafka, self.barrier()

        def is_there() -> bool:
            assert self.process is not None
            assert self.process.popen.poll() is None, self.process.lines[-5:]
            assert (end := self.suspended_end()) is None, end
            if all(
                epoch_of(self.stage.config(), kafka, n) >= barrier.curr for n in range(len(self.stage.jobs))
            ):
                return True
            self.stage.upstream.barrier()
            return False

        await_condition(is_there, "all outputs at a barrier")

    def suspended_end(self) -> LastEnd | None:
        with suppress(StateError):  # a service that comes up has none yet
            return StateReader(
                Storage(str(self.stage.config().state)), self.stage.upstream.table
            ).suspended_end()
        return None

    def leads_on(self, *alter: str) -> None:
        """The command that a suspended table waits for."""
        self.barrier()
        await_condition(lambda: self.suspended_end() is not None, "the suspension")
        assert main(["alter", *alter, "--config", str(self.file)]) == 0
