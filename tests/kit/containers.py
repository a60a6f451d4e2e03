"""Docker, where an engine answers: a broker from the image that compose.yaml names, and compose itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from docker.client import DockerClient
from docker.errors import DockerException
from ruamel.yaml import YAML
from testcontainers.core.container import DockerContainer

from streaming.broker.embedded import free_port

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = YAML(typ="safe").load(ROOT / "compose.yaml")
_START_S = 120
_SUBSTITUTION = re.compile(r"\$\{(\w+):-([^}]*)\}")


class NoBroker(Exception):
    """Docker has no broker to offer; says why."""


def no_engine() -> str | None:
    """Why there is no Docker here, None if there is."""
    try:
        DockerClient.from_env(timeout=5).ping()
    except DockerException:
        return "no Docker engine answers"
    return None


def no_compose() -> str | None:
    """Why compose can't run here, None if it can."""
    command = ["docker", "compose", "version"]
    if shutil.which("docker") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        return "no docker compose command"
    return no_engine()


@contextmanager
def kafka_in_docker() -> Iterator[str]:
    """The address of a broker as compose.yaml has it. Raises: NoBroker."""
    service = COMPOSE["services"]["kafka"]
    port = free_port()
    container = DockerContainer(_substituted(service["image"])).with_bind_ports(9092, port)
    for name, value in service["environment"].items():
        container.with_env(name, str(value))
    address = f"127.0.0.1:{port}"
    container.with_env("KAFKA_ADVERTISED_LISTENERS", f"INSIDE://localhost:19092,OUTSIDE://{address}")
    try:
        container.start()
    except DockerException as error:
        raise NoBroker(f"{container.image}: {error}") from error
    try:
        _await_answer(address)
        yield address
    finally:
        container.stop()


def _await_answer(address: str) -> None:
    try:
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=_START_S)
    except KafkaException as error:
        raise NoBroker(f"no answer from the container within {_START_S} s") from error


def _substituted(text: str) -> str:
    """Variables filled in as compose does with `${NAME:-default}`."""
    return _SUBSTITUTION.sub(lambda match: os.environ.get(match[1]) or match[2], text)
