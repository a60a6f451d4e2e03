"""The real things that tests run on, started once a run and only when a test asks for them.

Broker: that of `KAFKA_BOOTSTRAP` when set, else one in Docker when an engine answers, else the embedded
one. All start out the same to a test: topics have names that no other test has, and are deleted
afterwards.
"""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from state.storage import Storage
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin, create_topic
from streaming.runtime.spark_settings import SparkSettings
from tests.kit import containers
from tests.kit.fault_results import FaultResults
from tests.kit.registry import FakeRegistry
from tests.kit.spark import spark_session

# A time limit on an example says more about the machine's load than about the code. `ci` draws the same
# examples in each run (their seed is derived from the test's source) and prints how to repeat a failure.
settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile(
    "ci",
    parent=settings.get_profile("dev"),
    derandomize=True,
    max_examples=40,  # they are the same ones each time, where others are looked for by each `make test`
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", parent=settings.get_profile("dev"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# The JVM of a single test is over before its second compiler has paid for itself: half of a service's CPU time in its
# first half minute. Options that are given already stay.
_JAVA_OPTIONS, _FIRST_COMPILER_ALONE = "JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1"
os.environ.setdefault(_JAVA_OPTIONS, _FIRST_COMPILER_ALONE)

TopicFactory = Callable[..., str]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FaultResults())


def pytest_report_header() -> str:
    return f"hypothesis profile: {settings.get_current_profile_name()}"


@contextmanager
def _jvm_of_the_run() -> Iterator[None]:
    """For the start of a JVM that lives as long as the run: with both compilers."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ[_JAVA_OPTIONS] == _FIRST_COMPILER_ALONE:
            patch.delenv(_JAVA_OPTIONS)
        yield


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker that is ready for transactions."""
    if given := os.environ.get("KAFKA_BOOTSTRAP"):
        yield given
        return
    with ExitStack() as stack:
        address = None
        if containers.no_engine() is None:
            try:
                address = stack.enter_context(containers.kafka_in_docker())
            except containers.NoBroker as reason:
                warnings.warn(f"the embedded broker, for Docker has none: {reason}", stacklevel=1)
        if address is None:
            log = tmp_path_factory.mktemp("kafka") / "kafka.log"
            with _jvm_of_the_run():
                address = stack.enter_context(EmbeddedBroker(log=log)).bootstrap
        yield address


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The service's own session, on two cores."""
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with ExitStack() as stack:
        with _jvm_of_the_run():
            session = stack.enter_context(
                spark_session(
                    SparkSettings(cores=2, log=log, worker_daemon="streaming.service.worker_daemon")
                )
            )
        yield session


@pytest.fixture
def kafka(bootstrap: str) -> KafkaSettings:
    return KafkaSettings(bootstrap)


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[TopicFactory]:
    """`topic(partitions=4, name="orders")` creates a topic and returns its name, which starts so."""
    kafka = KafkaSettings(bootstrap)
    made: list[str] = []

    def create(partitions: int = 1, name: str = "t", config: dict[str, str] | None = None) -> str:
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        create_topic(kafka, unique, partitions, config=config)
        made.append(unique)
        return unique

    yield create
    client = admin(kafka)
    for deletion in client.delete_topics(made).values() if made else ():
        deletion.result(30)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    found = Storage(str(tmp_path / "state"))
    found.prepare()
    return found


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry().serving() as serving:
        yield serving


@pytest.fixture(autouse=True)
def _logs_stay_in_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKFILL_LOGS", str(tmp_path / "logs"))


@pytest.fixture(autouse=True)
def _log_lines_do_not_outlive_the_captured_stream() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark or a broker, by the fixtures it asks for; `make quick` leaves these out."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & {"spark", "kill_scenario"}:
            item.add_marker(pytest.mark.spark)
        if fixtures & {"bootstrap", "broker"}:
            item.add_marker(pytest.mark.kafka)
