"""A table that starts from PostgreSQL while two sessions change it, through the real connector."""

from __future__ import annotations

import json
import math
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.errors import BackfillError, Code, StateError
from schemas.job import JobDefinition
from schemas.records import Add, Barrier
from schemas.table import declare
from state.storage import Storage
from streaming.cli.app import main
from streaming.control.state_view import StateReader
from streaming.kafka.clients import KafkaSettings
from tests.kit.connect import large_table
from tests.kit.connect.large_table import LongTransactions, selected
from tests.kit.connect.platform import Platform
from tests.kit.connect.source import ConnectorUpstream, Source
from tests.kit.connect.table import Database
from tests.kit.folded import epoch_of, folded
from tests.kit.process import Process
from tests.kit.real import Run, Stage, await_condition

pytestmark = [pytest.mark.connect, pytest.mark.timeout(1_200)]
ROWS = 50_000
COPY = {"name": "copy"}
SOME = {"name": "some", "filter": "region = 'EU' AND amount < 5000", "columns": ["amount", "body"]}
NO_DATA = {
    "snapshot.mode": "no_data",
    "time.precision.mode": "microseconds",
    "heartbeat.interval.ms": "500",
    "heartbeat.action.query": "SELECT pg_logical_emit_message(true, 'heartbeat', '')",
}


class Table:
    """A large table in a database of its own, with the connector of its topic and a stage for the service."""

    def __init__(self, platform: Platform, bootstrap: str, spark: SparkSession, folder: Path) -> None:
        self.name = f"i{uuid.uuid4().hex[:8]}"
        self.postgres = platform.postgres
        self.postgres.create(self.name, *large_table.made(ROWS))
        self.source = Source(platform.connect, self.postgres, self.name, large_table.NAME, NO_DATA)
        kafka, topic = KafkaSettings(bootstrap), f"{self.name}.public.items"
        form = {"format": "debezium", "decimal": "precise"}
        self.upstream = ConnectorUpstream(declare(large_table.DECLARED), kafka, topic, 3, form)
        dsn = Database(self.postgres, self.name, folder).access.dsn.file
        start = {
            "dsn_file": str(dsn),
            "table": large_table.NAME,
            "slot": self.name,
            "connector_url": platform.connect.url_of(self.name),
            "chunk_rows": 2_000,
        }
        self.upstream.sections = {**self.upstream.sections, "initial": {"postgres": start}}
        jobs = [
            {"output": f"{job['name']}-{self.name}", "output_partitions": 4, **job} for job in (COPY, SOME)
        ]
        self.stage = Stage(spark, self.upstream, folder, jobs)
        self.writers = LongTransactions(self.postgres, self.name, ROWS, 7)

    def with_start(self, **over: Any) -> dict[str, Any]:
        """The section `initial` with other keys in it."""
        return {"initial": {"postgres": {**self.upstream.sections["initial"]["postgres"], **over}}}

    def barrier(self) -> Barrier:
        """One behind everything that is committed now."""
        self.source.await_all()
        return self.upstream.barrier()

    def upto(self) -> float:
        """The highest key that is released: none is below 0, and every one at infinity."""
        try:
            plan = StateReader(Storage(self.stage.config().state), self.upstream.table).read().plan
        except StateError:  # it is being made
            return -1
        if plan is None:
            return -1
        released = None if plan.reading is None else plan.reading.read.released
        if plan.reading is None or (released is not None and released.upto is None):
            return math.inf
        if released is None or released.upto is None:
            return -1
        [key] = released.upto
        assert isinstance(key, int)
        return key

    def is_what_the_database_has(self) -> None:
        whole = selected(self.postgres, self.name, "region, amount, body")
        some = selected(self.postgres, self.name, "amount, body", "region = 'EU' AND amount < 5000")
        assert {key: row[1:] for key, row in folded(self.stage).items()} == whole
        assert folded(self.stage, number=1) == some
        assert 0 < len(some) < len(whole)

    def close(self) -> None:
        self.writers.close()
        self.source.end()
        self.upstream.close()


@pytest.fixture
def table(platform: Platform, bootstrap: str, spark: SparkSession, tmp_path: Path) -> Iterator[Table]:
    made = Table(platform, bootstrap, spark, tmp_path)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def barriers(upstream: ConnectorUpstream, interval_s: float = 0.3) -> Iterator[None]:
    """One after another while the block runs."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(interval_s):
            upstream.barrier()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def started(table: Table, over: Mapping[str, Any] = MappingProxyType({})) -> Process:
    path = table.stage.folder / "config.json"
    path.write_text(json.dumps(table.stage.declared(**over)), encoding="utf-8")
    return Process.start(path)


def await_running(process: Process, condition: Callable[[], bool], what: str) -> None:
    try:
        await_condition(lambda: condition() or process.popen.poll() is not None, what)
    except AssertionError as late:
        raise AssertionError(what, process.lines[-5:]) from late
    assert process.popen.poll() is None, process.lines[-5:]


def planned(table: Table, over: Mapping[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """The output of `plan` before the service has ever run."""
    path = table.stage.folder / "plan.json"
    path.write_text(json.dumps(table.stage.declared(**over)), encoding="utf-8")
    assert main(["plan", "-c", str(path), "--name", "copy", "--output", "copy", "--json"]) == 0
    return str(json.loads(capsys.readouterr().out)["facts"]["starts with"])


def test_outputs_add_up_to_the_table_that_is_read_while_it_changes(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs are created at a tenth of it, and the service is killed in the middle."""
    slowly = {**table.with_start(rate_limit=1_000), "jobs": []}
    table.source.begin()
    plan = planned(table, slowly, capsys)
    assert re.fullmatch(
        r"about (49|50|51),\d{3} rows in [\d.]+ MiB of table public.items of PostgreSQL and slot \w+: "
        r"(49|50|51) s or more with its limit of 1,000 rows/s",
        plan,
    ), plan
    process = started(table, slowly)
    try:
        with table.writers.writing():
            with barriers(table.upstream):
                await_running(process, lambda: table.upto() > 2 * ROWS // 10, "a tenth")
            for job in table.stage.config().jobs:
                table.upstream.barrier(Add(JobDefinition.to_json(job)))
            with barriers(table.upstream):
                await_running(process, lambda: table.upto() > ROWS, "the middle")
                process.kill()
                assert process.end() == -9
                assert table.upto() < math.inf
                process = started(table, {**table.with_start(), "jobs": []})
                await_running(process, lambda: table.upto() == math.inf, "the table's end")
        last = table.barrier()
        config, kafka = table.stage.config(), table.upstream.kafka
        await_running(
            process, lambda: min(epoch_of(config, kafka, number) for number in (0, 1)) >= last.curr, "the end"
        )
        table.is_what_the_database_has()
        assert table.writers.commits > 20
        assert process.end(signal.SIGTERM) == 0
    finally:
        process.kill()
    service = table.stage.service()
    service.rebuild = True
    error = Run(service).end()
    assert isinstance(error, BackfillError)
    assert error.code is Code.OUTPUT_OUT_OF_STEP
