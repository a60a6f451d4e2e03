"""A broker that may be killed, and services that are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from tests.kit.fault_results import RECOVERIES_S
from tests.kit.kill_scenario import KillScenario

KillScenarios = Callable[..., KillScenario]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of this process's own, which tests may kill."""
    with EmbeddedBroker(log=tmp_path_factory.mktemp("kafka") / "kafka.log") as broker:
        yield broker


@pytest.fixture
def kill_scenario(
    broker: EmbeddedBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[KillScenarios]:
    """`kill_scenario(rows=…, rate_limit=…, live_rate=…)`, see `KillScenario`."""
    made: list[KillScenario] = []

    def build(kind: type[KillScenario] = KillScenario, folder: Path = tmp_path, **how: Any) -> KillScenario:
        made.append(kind(KafkaSettings(broker.bootstrap), folder, **how))
        return made[-1]

    yield build
    for each in made:
        each.leave_nothing()
    recoveries_s = [seconds for each in made for seconds in each.recoveries_s]
    request.node.user_properties.append((RECOVERIES_S, recoveries_s))
