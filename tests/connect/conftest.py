"""Real servers of other people, started beside each other when the first test asks for one of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.records import Barrier
from schemas.table import declare
from streaming.kafka.clients import KafkaSettings
from tests.kit.apicurio import Apicurio, apicurio
from tests.kit.connect import items, orders
from tests.kit.connect.mariadb import MariaDbServer, needs_mariadb
from tests.kit.connect.platform import Platform, platform_on
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.served_table import ServedTable
from tests.kit.connect.source import ConnectorUpstream, Source
from tests.kit.connect.worker import Connect
from tests.kit.connect.writers import Writers
from tests.kit.real import Stage


@pytest.fixture(scope="session")
def platform(bootstrap: str) -> Iterator[Platform]:
    with platform_on(bootstrap) as running:
        yield running


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with apicurio(tmp_path_factory.mktemp("apicurio")) as running:
        yield running


@pytest.fixture
def postgres(platform: Platform) -> Postgres:
    return platform.postgres


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    found = MariaDbServer(tmp_path_factory.mktemp("mariadb"))
    try:
        found.begin()
        found.await_ready()
        yield found
    finally:
        found.stop()


@pytest.fixture
def connect(platform: Platform) -> Connect:
    return platform.connect


@dataclass(frozen=True, slots=True)
class Circle:
    """A table in a database of its own, whose changes a connector brings to the service of a stage."""

    postgres: Postgres
    connect: Connect
    database: str
    source: Source
    writers: Writers
    stage: Stage

    def barrier(self) -> Barrier:
        """One behind everything that is committed now."""
        self.source.await_all()
        return self.stage.upstream.barrier()

    def execute(self, statement: str) -> None:
        with self.postgres.connect(self.database) as session:
            session.execute(statement)

    def identity(self, identity: str) -> None:
        """The part of former rows that the database logs: their keys (DEFAULT), or all of them (FULL)."""
        self.execute(f"ALTER TABLE orders REPLICA IDENTITY {identity}")


CircleOf = Callable[..., Circle]


@pytest.fixture
def circle_of(platform: Platform, bootstrap: str, spark: SparkSession, tmp_path: Path) -> Iterator[CircleOf]:
    """`circle_of(form, settings, *jobs, seed=0, without=(), sections={})`.

    `form` says how records are read, `settings` are further ones of the connector, `sections` of the service.
    """
    made: list[Circle] = []

    def build(
        form: Mapping[str, Any],
        settings: Mapping[str, str],
        *jobs: dict[str, Any],
        seed: int = 0,
        without: tuple[str, ...] = (),
        sections: Mapping[str, Any] = MappingProxyType({}),
    ) -> Circle:
        name = f"c{uuid.uuid4().hex[:8]}"
        postgres, connect = platform.postgres, platform.connect
        postgres.create(name, *orders.MADE)
        upstream = ConnectorUpstream(
            declare(orders.declared(without)), KafkaSettings(bootstrap), f"{name}.public.orders", 3, form
        )
        upstream.sections = {**upstream.sections, **sections}
        source = Source(connect, postgres, name, "public.orders", settings)
        named = [{"output": f"{job['name']}-{name}", "output_partitions": 4, **job} for job in jobs]
        stage = Stage(spark, upstream, tmp_path, named)
        made.append(Circle(postgres, connect, name, source, Writers(postgres, name, seed), stage))
        return made[-1]

    yield build
    for circle in made:
        circle.writers.close()
        circle.source.end()
        circle.stage.upstream.close()


ServedOf = Callable[..., ServedTable]


@pytest.fixture(params=["postgres", pytest.param("mariadb", marks=needs_mariadb)])
def served_of(
    connect: Connect, bootstrap: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[ServedOf]:
    """`served_of(form, settings, sections, *jobs)`, as of `circle_of`: the table of `items`, on each kind of server."""
    made, server = list[ServedTable](), request.getfixturevalue(request.param)

    def build(
        form: Mapping[str, Any],
        settings: Mapping[str, str],
        sections: Mapping[str, Any],
        *jobs: dict[str, Any],
    ) -> ServedTable:
        name = f"c{uuid.uuid4().hex[:8]}"
        server.create(name, *items.MADE)
        kafka, table = KafkaSettings(bootstrap), server.name_of(name, "items")
        upstream = ConnectorUpstream(declare(items.DECLARED), kafka, f"{name}.{table}", 3, form)
        upstream.sections = {**upstream.sections, **sections}
        source = Source(connect, server, name, table, settings)
        named = [{"output": f"{job['name']}-{name}", "output_partitions": 4, **job} for job in jobs]
        made.append(ServedTable(server, source, Stage(spark, upstream, tmp_path, named)))
        return made[-1]

    yield build
    for each in made:
        if each.process is not None:
            each.process.kill()
        each.source.end()
        each.stage.upstream.close()
