"""A table of PostgreSQL that Debezium's JDBC sink keeps as the records of a topic say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import ConsumerGroupTopicPartitions
from psycopg import sql

from schemas.records import Row
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import located
from streaming.kafka.topics import admin, partitions_of
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.worker import Connect
from tests.kit.kafka_topics import read_tail
from tests.kit.real import await_condition


class Sink:
    """A connector from a topic into the table `name`. `over` are further settings of it."""

    def __init__(
        self,
        connect: Connect,
        postgres: Postgres,
        database: str,
        name: str,
        topic: str,
        over: Mapping[str, str],
    ) -> None:
        self.name, self.topic, self._database = name, topic, database
        self._connect, self._postgres = connect, postgres
        self._config = {
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "tasks.max": "1",
            "topics": topic,
            "connection.url": f"jdbc:postgresql://127.0.0.1:{postgres.port}/{database}",
            "connection.username": "postgres",
            "connection.password": "unused",
            "connection.pool.min_size": "1",
            "connection.pool.max_size": "2",
            "insert.mode": "upsert",
            "delete.enabled": "true",
            "primary.key.mode": "record_key",
            "schema.evolution": "basic",
            "collection.name.format": name,
            "header.converter": "org.apache.kafka.connect.storage.StringConverter",
            "consumer.override.isolation.level": "read_committed",
            "consumer.override.auto.offset.reset": "earliest",
            "consumer.override.metadata.max.age.ms": "500",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "true",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
            **over,
        }

    def begin(self) -> None:
        """From the topic's beginning."""
        self._connect.create(self.name, self._config)

    def end(self) -> None:
        self._connect.delete(self.name)

    def await_all(self, kafka: KafkaSettings) -> None:
        """Wait until what committed readers see now is in the table. A task that fails is an error."""
        tails = {
            number: located(tail)[1]
            for number in range(partitions_of(kafka, self.topic) or 0)
            if (tail := read_tail(kafka, self.topic, number)) is not None
        }
        assert tails, f"nothing in {self.topic}"
        await_condition(
            lambda: bool(self._connect.failure(self.name)) or self._is_past(kafka, tails),
            f"{self.name} at {tails}",
        )
        assert not self._connect.failure(self.name), self._connect.failure(self.name)

    def _is_past(self, kafka: KafkaSettings, tails: Mapping[int, int]) -> bool:
        group = f"connect-{self.name}"
        client = admin(kafka)  # kept: no answer comes to one that is gone
        [future] = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        done = {each.partition: each.offset for each in future.result(30).topic_partitions}
        return all(done.get(number, 0) > offset for number, offset in tails.items())

    def count(self) -> int:
        """Rows that are there; 0 as long as there is no table."""
        if self._postgres.value(self._database, "SELECT to_regclass(%s)", self.name) is None:
            return 0
        return int(self._postgres.value(self._database, f"SELECT count(*) FROM {self.name}"))  # noqa: S608

    def differences(self, columns: Iterable[str], rows: Iterable[Row]) -> tuple[int, int]:
        """Counts of these rows that the table lacks, and of others that it has: the database compares."""
        table, expected = sql.Identifier(self.name), sql.Identifier(f"{self.name}_expected")
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        with self._postgres.connect(self._database) as session:
            session.execute(
                sql.SQL("CREATE TABLE {} AS SELECT {} FROM {} LIMIT 0").format(expected, names, table)
            )
            copy_in = sql.SQL("COPY {} ({}) FROM STDIN").format(expected, names)
            with session.cursor().copy(copy_in) as copy:
                for row in rows:
                    copy.write_row(row)
            found = [
                session.execute(
                    sql.SQL(
                        "SELECT count(*) FROM (SELECT {n} FROM {a} EXCEPT ALL SELECT {n} FROM {b}) AS rest"
                    ).format(n=names, a=one, b=other)
                ).fetchone()
                for one, other in ((expected, table), (table, expected))
            ]
            session.execute(sql.SQL("DROP TABLE {}").format(expected))
        lacking, further = (each[0] for each in found if each is not None)
        return lacking, further
