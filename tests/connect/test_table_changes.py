"""A table of PostgreSQL that changes under load, through Debezium: columns come, widen, are renamed and go."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest
from pyspark.sql import SparkSession

from schemas.errors import StateError
from schemas.kinds.table_changes import RenameField, changes_text
from schemas.records import Alter, Barrier
from schemas.settings.config import ServiceConfig
from schemas.table import declare
from state.storage import Storage
from state.values.last_end import LastEnd
from streaming.cli.app import main
from streaming.control.known_table import as_known
from streaming.control.state_view import StateReader
from streaming.kafka.clients import KafkaSettings
from tests.connect.test_postgres_in import FRAMES
from tests.connect.test_registry_between import ADJUSTED
from tests.kit.apicurio import Apicurio
from tests.kit.connect.platform import Platform
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.source import ConnectorUpstream, Source
from tests.kit.connect.worker import avro_by
from tests.kit.folded import epoch_of, fold_of
from tests.kit.process import Process
from tests.kit.real import Stage, await_condition

pytestmark = [pytest.mark.connect, pytest.mark.timeout(1_200)]
MADE = "CREATE TABLE items (id bigint PRIMARY KEY, n integer, price numeric(10,2), note text, legacy text)"
TABLE: dict[str, Any] = {
    "name": "items",
    "columns": {"id": "bigint", "n": "int", "price": "decimal(10,2)", "note": "string", "legacy": "string"},
    "primary_key": ["id"],
    "vnode_count": 16,
}
JOBS: tuple[dict[str, Any], ...] = (
    {"name": "some", "columns": ["id", "n", "price", "note"], "format": "upsert"},
    {"name": "events", "format": "debezium", "encoding": "json-schema", "new_columns": "send"},
)
FRAMED: dict[str, Any] = {
    "name": "framed",
    "format": "upsert",
    "encoding": "avro-registry",
    "new_columns": "send",
}
NULLS = {"value.converter.replace.null.with.default": "false"}
"""Else the converter writes a column's default for each null."""
IDS = 300


@dataclass
class Load:
    """A session that writes the table at random, with the columns that it has at the time."""

    postgres: Postgres
    database: str
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    _done: int = 0
    _error: BaseException | None = None
    _moved: threading.Condition = field(default_factory=threading.Condition)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def steps(self, count: int) -> None:
        """Wait until so many further statements are committed."""
        with self._moved:
            until = self._done + count
            assert self._moved.wait_for(lambda: self._error or self._done >= until, 120)
        assert self._error is None, self._error

    def _write(self) -> None:
        try:
            with self.postgres.connect(self.database) as session:
                kinds = self._columns(session)
                while not self._stop.wait(0.002):
                    try:
                        self._step(session, kinds)
                    except psycopg.errors.UndefinedColumn:
                        kinds = self._columns(session)
                        continue
                    if self._done % 20 == 0:
                        kinds = self._columns(session)
                    with self._moved:
                        self._done += 1
                        self._moved.notify_all()
        except BaseException as error:  # noqa: BLE001  # shown by `steps`
            with self._moved:
                self._error = error
                self._moved.notify_all()

    @staticmethod
    def _columns(session: psycopg.Connection[Any]) -> dict[str, str]:
        query = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'items'"
        return dict(session.execute(query).fetchall())

    def _step(self, session: psycopg.Connection[Any], kinds: Mapping[str, str]) -> None:
        key, names = self.chance.randrange(IDS), [name for name in kinds if name != "id"]
        if self.chance.random() < 0.1:
            session.execute("DELETE FROM items WHERE id = %s", [key])
            return
        # An insert leaves some columns to their defaults.
        names = self.chance.sample(names, self.chance.randrange(1, len(names) + 1))
        values = [self._value(kinds[name]) for name in names]
        sets = ", ".join(f"{name} = excluded.{name}" for name in names)
        session.execute(
            f"INSERT INTO items (id, {', '.join(names)}) VALUES (%s{', %s' * len(names)}) "  # noqa: S608
            f"ON CONFLICT (id) DO UPDATE SET {sets}",
            [key, *values],
        )

    def _value(self, kind: str) -> Any:
        if self.chance.random() < 0.1:
            return None
        match kind:
            case "integer":
                return self.chance.choice([0, 2**31 - 1, -(2**31), self.chance.randrange(-(2**31), 2**31)])
            case "bigint":
                return self.chance.choice([2**31, -(2**63), 2**63 - 1, 5])
            case "numeric":
                return Decimal(self.chance.randrange(-(10**10) + 1, 10**10)).scaleb(-2)
        return self.chance.choice(["", "x", "größer 🙂", "a" * 40])


@dataclass
class Changing:
    """The table, its connector, and a service as a process, which is killed and started again."""

    postgres: Postgres
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
        with self.postgres.connect(self.source.name) as session:
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
            return StateReader(Storage(str(self.stage.config().state)), declare(TABLE)).suspended_end()
        return None

    def leads_on(self, *alter: str) -> None:
        """The command that a suspended table waits for."""
        self.barrier()
        await_condition(lambda: self.suspended_end() is not None, "the suspension")
        assert main(["alter", *alter, "--config", str(self.file)]) == 0


@pytest.fixture
def changing(
    platform: Platform, bootstrap: str, spark: SparkSession, tmp_path: Path
) -> Iterator[Callable[..., Changing]]:
    made: list[Changing] = []

    def build(
        form: Mapping[str, Any],
        settings: Mapping[str, str],
        sections: Mapping[str, Any],
        *jobs: dict[str, Any],
    ) -> Changing:
        name = f"c{uuid.uuid4().hex[:8]}"
        platform.postgres.create(name, MADE)
        form = {"format": "debezium", "on_new_column": "add", "on_wider_type": "widen", **form}
        kafka, topic = KafkaSettings(bootstrap), f"{name}.public.items"
        upstream = ConnectorUpstream(declare(TABLE), kafka, topic, 3, form)
        upstream.sections = {**upstream.sections, **sections}
        source = Source(platform.connect, platform.postgres, name, "public.items", settings)
        named = [{"output": f"{job['name']}-{name}", "output_partitions": 4, **job} for job in jobs]
        made.append(Changing(platform.postgres, source, Stage(spark, upstream, tmp_path, named)))
        return made[-1]

    yield build
    for each in made:
        if each.process is not None:
            each.process.kill()
        each.source.end()
        each.stage.upstream.close()


@pytest.mark.parametrize("is_avro", [False, True], ids=["frames", "registry"])
def test_a_table_changes_under_load_and_outputs_follow(
    changing: Callable[..., Changing],
    registry: Apicurio,
    capsys: pytest.CaptureFixture[str],
    is_avro: bool,
) -> None:
    sections = {"registry": {"url": registry.url}}
    table = (
        changing(
            {"encoding": "avro-registry"}, {**avro_by(registry.url), **ADJUSTED}, sections, *JOBS, FRAMED
        )
        if is_avro
        else changing(
            {"decimal": "precise", "time": "adaptive"}, {**FRAMES, **NULLS}, sections, *JOBS, FRAMED
        )
    )
    with Load(table.postgres, table.source.name) as load:
        load.steps(300)
        table.source.begin()
        table.start()
        table.reach()
        # A column with a default, and a kill before its first record is read.
        table.sql("ALTER TABLE items ADD COLUMN tier integer DEFAULT 7")
        load.steps(100)
        table.kill()
        load.steps(100)
        table.start()
        table.reach()
        assert table.known.table.by_name["tier"].fill == 7
        # Wider types.
        table.sql("ALTER TABLE items ALTER n TYPE bigint, ALTER price TYPE numeric(14,2)")
        load.steps(200)
        table.reach()
        assert str(table.known.table.by_name["n"].type) == "bigint"
        # Another name, and a column that is dropped.
        if not is_avro:  # where it would be a new column by itself
            table.stage.upstream.barrier(Alter(changes_text([RenameField("note", "title")])))
            table.reach()
        table.sql("ALTER TABLE items RENAME note TO title")
        load.steps(100)
        if is_avro:
            table.leads_on("--rename", "note=title")
        table.reach()
        table.sql("ALTER TABLE items DROP COLUMN legacy")
        load.steps(100)
        if is_avro:
            table.leads_on("--retire", "legacy")
        table.kill()
        table.start()
        load.steps(100)
        table.reach()
    table.reach()
    is_what_the_database_has(table, is_avro=is_avro)
    capsys.readouterr()
    assert main(["verify", "--config", str(table.file)]) == 0, capsys.readouterr()


def is_what_the_database_has(table: Changing, *, is_avro: bool) -> None:
    """The outputs, but for the column that the database has no more."""
    with table.postgres.connect(table.source.name) as session:
        # Apicurio's converter has no way to keep a null of a column with a default.
        tier = "coalesce(tier, 7)" if is_avro else "tier"
        rows = session.execute(f"SELECT id, n, price, title, {tier} FROM items").fetchall()  # noqa: S608
    wanted, known, kafka = {row[:1]: row for row in rows}, table.known, table.stage.upstream.kafka
    assert known.table.column_names == ("id", "n", "price", "note", "legacy", "tier")
    some, *others = (fold_of(known, kafka, number)[0] for number in range(3))
    assert some == {key: row[:4] for key, row in wanted.items()}
    for fold in others:
        assert {key: (*row[:4], row[5]) for key, row in fold.items()} == wanted
