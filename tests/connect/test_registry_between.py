"""Events and outputs in Avro, by a registry that is away for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from schemas.errors import Code
from streaming.registry.client import AskedSchemas, Registry
from tests.connect.conftest import Circle
from tests.connect.test_postgres_in import COPY, SOME, is_what_the_database_has
from tests.kit.apicurio import Apicurio
from tests.kit.connect import orders
from tests.kit.connect.worker import avro_by

pytestmark = [pytest.mark.connect, pytest.mark.timeout(1_200)]
CircleOf = Callable[..., Circle]
ADJUSTED = {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}
NO_COLUMN = ("clock", "counts", "tags")
"""Times of a day and arrays have none in Avro."""
NARROW = [name for name in orders.NARROW if name not in NO_COLUMN]


def stopped_until_missed(circle: Circle, registry: Apicurio, run: Any) -> list[Code]:
    """Stop the registry until the service says that it is away; what it says."""
    troubles: list[Code] = []

    def note(problem: Any) -> None:
        troubles.append(problem.code)
        registry.process.send_signal(signal.SIGCONT)

    run.service.on_trouble = note
    registry.process.send_signal(signal.SIGSTOP)
    try:
        run.reach(circle.stage.upstream.barrier())
    finally:
        registry.process.send_signal(signal.SIGCONT)
    return troubles


def test_events_in_avro_while_the_registry_stops_and_schemas_change(
    circle_of: CircleOf, registry: Apicurio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.registry.client.WAIT_S", 1.0)
    circle = circle_of(
        {"format": "debezium", "encoding": "avro-registry"},
        {**avro_by(registry.url), **ADJUSTED},
        COPY,
        {**SOME, "columns": NARROW},
        without=NO_COLUMN,
        sections={"registry": {"url": registry.url}},
    )
    writers = circle.writers
    writers.write(300)
    circle.source.begin()
    writers.write(300)
    circle.barrier()
    with circle.stage.running() as run:
        while not (run.is_complete("copy") and run.is_complete("some")):
            writers.write(50)
            run.reach(circle.barrier())
        is_what_the_database_has(circle, NARROW)
        circle.execute("ALTER TABLE orders ADD COLUMN further int DEFAULT 7")
        writers.write(300)
        circle.source.await_all()
        assert set(stopped_until_missed(circle, registry, run)) == {Code.REGISTRY_UNREACHABLE}
        is_what_the_database_has(circle, NARROW)
    config = circle.stage.config()
    asked = config.upstream_format.with_schemas(AskedSchemas(Registry(config.registry)))
    for number, job in enumerate(config.jobs):
        assert circle.stage.verify(number, formats=(asked, job.format)).clean
