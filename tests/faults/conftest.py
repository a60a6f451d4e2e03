"""Every fault's result goes into one table, printed at the end: what, when, how long until it worked again."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streaming.dev.broker import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from tests.kit.kill_scenario import KillScenario

KillScenarios = Callable[..., KillScenario]

_KILL_SCENARIOS = pytest.StashKey[dict[str, list[KillScenario]]]()
_OUTCOMES = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_KILL_SCENARIOS] = {}
    config.stash[_OUTCOMES] = {}


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
    made = request.config.stash[_KILL_SCENARIOS].setdefault(request.node.nodeid, [])

    def build(kind: type[KillScenario] = KillScenario, folder: Path = tmp_path, **how: Any) -> KillScenario:
        made.append(kind(KafkaSettings(broker.bootstrap), folder, **how))
        return made[-1]

    yield build
    for each in made:
        each.leave_nothing()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.config.stash[_OUTCOMES][item.nodeid] = report.outcome
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    kill_scenarios, outcomes = config.stash[_KILL_SCENARIOS], config.stash[_OUTCOMES]
    if not kill_scenarios:
        return
    table = Table("fault", "outcome", "starts that recovered", "until a new barrier, s")
    every: list[float] = []
    for name, made in kill_scenarios.items():
        times = [time for each in made for time in each.recoveries_s]
        every += times
        shown = ", ".join(f"{time:.1f}" for time in times)
        table.add_row(escape(name.split("::")[-1]), outcomes.get(name, "error"), str(len(times)), shown)
    console = Console(file=terminalreporter._tw._file, width=140)
    console.print(table)
    if every:
        console.print(
            f"{len(every)} recoveries, from the start of the process to the first new barrier: "
            f"median {statistics.median(every):.1f} s, maximum {max(every):.1f} s"
        )
