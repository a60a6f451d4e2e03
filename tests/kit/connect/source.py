"""A topic that Debezium's connector writes from a table of PostgreSQL, as the upstream of a service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.table import TableSchema
from streaming.kafka.clients import KafkaSettings
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.worker import Connect
from tests.kit.real import RealUpstream, await_condition


class Source:
    """A connector: its name is also that of its slot and its topics' prefix. `over` are further settings of it."""

    def __init__(
        self, connect: Connect, postgres: Postgres, name: str, tables: str, over: Mapping[str, str]
    ) -> None:
        self.name, self._connect, self._postgres = name, connect, postgres
        self._config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": "127.0.0.1",
            "database.port": str(postgres.port),
            "database.user": "postgres",
            "database.password": "unused",
            "database.dbname": name,
            "topic.prefix": name,
            "plugin.name": "pgoutput",
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "filtered",
            "table.include.list": tables,
            "snapshot.mode": "initial",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            "poll.interval.ms": "50",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            **over,
        }

    def begin(self) -> None:
        """With a snapshot of what is there. Returns when it streams."""
        self._connect.create(self.name, self._config)
        self.await_streaming()

    def await_streaming(self) -> None:
        """Wait until it reads its slot: a task that runs may not have come so far."""
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        await_condition(
            lambda: (
                self._postgres.value("postgres", query, self.name) is True
                or bool(self._connect.failure(self.name))
            ),
            f"the slot of {self.name}",
        )
        assert not self._connect.failure(self.name), self._connect.failure(self.name)

    def await_all(self) -> None:
        """Wait until everything that is committed now is in the topic."""
        self._postgres.await_read(self.name, self.name)

    def end(self) -> None:
        """Delete it; its slot would keep the database's log."""
        self._connect.delete(self.name)
        query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active"
        await_condition(lambda: self._postgres.value("postgres", query, self.name) == 0, "a slot that rests")
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
        self._postgres.value("postgres", drop, self.name)


class ConnectorUpstream(RealUpstream):
    """Its topic is made here; `form` is what the configuration says of its records."""

    def __init__(
        self, table: TableSchema, kafka: KafkaSettings, topic: str, partitions: int, form: Mapping[str, Any]
    ) -> None:
        super().__init__(table, kafka, topic, partitions, f"{topic}.barriers")
        self.sections = {"upstream": {"topic": topic, **form}}
