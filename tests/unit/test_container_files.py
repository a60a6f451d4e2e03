"""Promises of the container files to an orchestrator, as far as they can be read from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from schemas.settings.limits import parse_duration
from streaming.runtime.java.jars import spark_home

ROOT = Path(__file__).parents[2]
SERVICES = YAML(typ="safe").load(ROOT / "compose.yaml")["services"]
LEAST_START_MS = 5 * 60_000
"""A cluster on a busy machine was seen to take two minutes."""


def test_a_start_is_given_time_and_life_is_what_is_asked_for() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    check = re.search(r"^HEALTHCHECK (.*?)\n.*?/healthz", dockerfile, re.MULTILINE | re.DOTALL)
    assert check is not None
    period = re.search(r"--start-period=(\w+)", check[1])
    assert period is not None
    assert parse_duration(period[1]) >= LEAST_START_MS


def test_the_image_leaves_out_jars_that_the_pinned_spark_has() -> None:
    patterns = (ROOT / "docker" / "unused-jars.txt").read_text(encoding="utf-8").splitlines()
    jars = spark_home() / "jars"
    assert [each for each in patterns if not each.startswith("#") and not list(jars.glob(each))] == []


def test_a_killed_service_leaves_nothing_that_its_next_start_does_not_sweep() -> None:
    """Spark's variable goes before `spark.local.dir`, which is the service's folder below TMPDIR."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"(\w+)=/var/lib/backfill/tmp\b", dockerfile) == ["TMPDIR"]


def test_a_process_of_the_cluster_that_dies_is_started_again() -> None:
    cluster = YAML(typ="safe").load(ROOT / "docker" / "cluster.yaml")
    spark = {name: service for name, service in cluster["services"].items() if name.startswith("spark-")}
    assert len(spark) == 2
    assert all(service.get("restart") == "unless-stopped" for service in spark.values())


def test_down_takes_every_container_away_and_only_the_service_has_the_state() -> None:
    """`docker compose down --volumes` leaves what belongs to a profile, and a state without its topics is of no use."""
    assert not [name for name, service in SERVICES.items() if "profiles" in service]
    with_state = [
        name
        for name, service in SERVICES.items()
        if any(str(volume).startswith("state:") for volume in service.get("volumes", ()))
    ]
    assert with_state == ["backfill"]
    assert SERVICES["events"]["scale"] == 0


@pytest.mark.parametrize("file", ["compose.yaml", "docker/cluster.yaml"])
def test_down_leaves_no_volume_without_a_name(file: str) -> None:
    """`docker compose up` hands one on to the next container by its name, and then it is nobody's."""
    volume = re.search(
        r"^VOLUME (.+)$", (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert volume is not None
    services = YAML(typ="safe").load(ROOT / file)["services"]
    mounts = {
        name: [each.split(":")[0] for each in service.get("tmpfs", ())]
        + [each.split(":")[1] for each in service["volumes"]]
        for name, service in services.items()
        if service.get("image") == "arrangement-backfill"
    }
    assert mounts
    assert not [name for name, each in mounts.items() if volume[1] not in each]


def test_every_port_of_this_machine_is_a_variable_with_its_usual_value() -> None:
    opened = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert opened == {
        "kafka": ["127.0.0.1:${KAFKA_PORT:-9092}:9092"],
        "backfill": ["127.0.0.1:${PAGE_PORT:-8080}:8080"],
    }


def test_kafka_is_known_on_this_machine_by_the_port_that_is_opened() -> None:
    addresses = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert addresses[1] == "OUTSIDE://127.0.0.1:${KAFKA_PORT:-9092}"


def test_one_service_builds_the_image_and_none_pulls_it() -> None:
    """A registry that is asked for it denies access, and the first line of the first command was a warning."""
    own = {name: service for name, service in SERVICES.items() if service["image"] == "arrangement-backfill"}
    assert [name for name, service in own.items() if "build" in service] == ["backfill"]
    assert {service["pull_policy"] for service in own.values()} == {"never"}
