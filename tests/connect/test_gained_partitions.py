"""A connector's topic that gains partitions while the connector writes, and a service that is killed behind them."""

from __future__ import annotations

from collections import defaultdict

import pytest

from schemas.records import Throttle
from streaming.cli.app import main
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.kafka.topics import watermarks
from tests.connect.conftest import ServedOf
from tests.kit.connect.items import Load
from tests.kit.folded import fold_of
from tests.kit.real import await_condition
from tests.kit.real_upstream import gain

pytestmark = [pytest.mark.connect, pytest.mark.timeout(1_200)]
FORM = {"format": "debezium", "decimal": "precise"}
SOON = {"producer.override.metadata.max.age.ms": "500"}
"""When the connector's producer learns of partitions."""
COPY = {"name": "copy", "rate_limit": 1}
SOME = {
    "name": "some",
    "filter": "n > 0 OR note = 'x'",
    "columns": ["n", "note"],
    "format": "debezium",
    "encoding": "json-schema",
}
BEFORE, GAINED = 3, 2


def test_no_row_is_lost_and_the_later_change_of_a_key_counts(
    served_of: ServedOf, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys come from two partitions then, and the connector's positions say which change is the later one."""
    table = served_of(FORM, SOON, {}, COPY, SOME)
    upstream, config = table.stage.upstream, table.stage.config()
    kafka, topic = upstream.kafka, upstream.name

    def unread() -> int:
        """Vnodes that the copy has to read yet."""
        return config.table.vnode_count - len(fold_of(config, kafka, 0)[1].finished)

    with Load(table.server, table.source.name) as load:
        load.steps(300)
        table.source.begin()
        table.start()
        table.reach()
        gain(upstream, GAINED)
        await_condition(
            lambda: all(mark.high for mark in watermarks(kafka, topic)[BEFORE:]), "records in all partitions"
        )
        table.barrier()
        assert table.process is not None
        table.process.await_event("partitions_added")
        table.kill()
        load.steps(100)
        table.start()
        table.reach()
        assert unread()
        upstream.barrier(Throttle("copy", None))
        while unread():
            table.reach()
    table.reach()
    assert moved_keys(kafka, topic)
    with table.server.connect(table.source.name) as session:
        rows = session.execute("SELECT id, n, price, note, legacy FROM items").fetchall()
    assert fold_of(config, kafka, 0)[0] == {row[:1]: row for row in rows}
    some = {(id_,): (n, note) for id_, n, _, note, _ in rows if (n or 0) > 0 or note == "x"}
    assert fold_of(config, kafka, 1)[0] == some
    assert 0 < len(some) < len(rows)
    capsys.readouterr()
    assert main(["verify", "--config", str(table.file)]) == 0, capsys.readouterr()


def moved_keys(kafka: KafkaSettings, topic: str) -> list[bytes]:
    """Keys with records in an earlier partition as well as in one that was added."""
    homes = defaultdict[bytes, set[int]](set)
    with RangeReader(kafka) as reader:
        ranges = {
            number: (mark.earliest, mark.stable) for number, mark in enumerate(reader.watermarks(topic))
        }
        for chunk in reader.read(topic, ranges):
            for message in chunk:
                if (key := message.key()) is not None:
                    homes[key].add(located(message)[0])
    return [key for key, found in homes.items() if min(found) < BEFORE <= max(found)]
