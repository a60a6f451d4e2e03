"""A topic that Debezium's connector writes from a table of a database, as the upstream of a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from schemas.table import TableSchema
from streaming.kafka.clients import KafkaSettings
from tests.kit.connect.worker import Connect
from tests.kit.real import await_condition
from tests.kit.real_upstream import RealUpstream


class LoggingServer(Protocol):
    """A server of databases whose log connectors read. One of them has the name of its database and its topics."""

    def connector(self, name: str, tables: str) -> Mapping[str, str]:
        """Its settings that are about this server, with the tables' full names."""

    def is_read(self, name: str) -> bool:
        """True once the connector reads the log: a task that runs may not have come so far."""

    def await_acknowledged(self, name: str, connect: Connect) -> None:
        """Wait until everything that is committed now is in the topic."""

    def end_reading(self, name: str) -> None:
        """Leave nothing that would keep the log, once the connector is deleted."""


class SqlResult(Protocol):
    """Of a statement."""

    def fetchall(self) -> Sequence[tuple[Any, ...]]: ...


class SqlSession(Protocol):
    """A session of a database, which commits each statement."""

    def execute(self, query: str, params: Sequence[Any] = ..., /) -> SqlResult: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class TableServer(LoggingServer, Protocol):
    """One whose tables are made, filled and changed: the SQL that differs between servers."""

    schema: str
    """The expression for the schema of a session's tables."""

    def create(self, database: str, *statements: str) -> None:
        """A database of its own, with what the statements make."""

    def connect(self, database: str) -> SqlSession: ...

    def name_of(self, database: str, table: str) -> str:
        """The full name of a table, as a connector's topic has it."""

    def or_update(self, key: str, names: Sequence[str]) -> str:
        """The end of an INSERT that changes these columns of a row which is there already."""

    def widened(self, column: str, kind: str) -> str:
        """A part of ALTER TABLE."""

    def lacks_a_column(self, error: Exception) -> bool:
        """True for the error of a statement that named a column that is not there."""


class Source:
    """A connector: its name is that of the database, and its topics' prefix. `over` are further settings of it."""

    def __init__(
        self, connect: Connect, server: LoggingServer, name: str, tables: str, over: Mapping[str, str]
    ) -> None:
        self.name, self._connect, self._server = name, connect, server
        self._config = {
            **server.connector(name, tables),
            "tasks.max": "1",
            "topic.prefix": name,
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
        """Wait until it reads the log."""
        await_condition(
            lambda: self._server.is_read(self.name) or bool(self._connect.failure(self.name)),
            f"the log read by {self.name}",
        )
        assert not self._connect.failure(self.name), self._connect.failure(self.name)

    def await_all(self) -> None:
        """Wait until everything that is committed now is in the topic."""
        self._server.await_acknowledged(self.name, self._connect)

    def end(self) -> None:
        """Delete it, with what it leaves in the database."""
        self._connect.delete(self.name)
        self._server.end_reading(self.name)


class ConnectorUpstream(RealUpstream):
    """Its topic is made here; `form` is what the configuration says of its records."""

    def __init__(
        self, table: TableSchema, kafka: KafkaSettings, topic: str, partitions: int, form: Mapping[str, Any]
    ) -> None:
        super().__init__(table, kafka, topic, partitions, f"{topic}.barriers")
        self.sections = {"upstream": {"topic": topic, **form}}
