"""What `compose.yaml` opens on a machine can be moved, and Kafka names the port that it has there."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

SERVICES = YAML(typ="safe").load(Path(__file__).parents[2] / "compose.yaml")["services"]


def test_every_port_of_this_machine_is_a_variable_with_its_usual_value() -> None:
    opened = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert opened == {
        "kafka": ["127.0.0.1:${KAFKA_PORT:-9092}:9092"],
        "backfill": ["127.0.0.1:${PAGE_PORT:-8080}:8080"],
    }


def test_kafka_is_known_on_this_machine_by_the_port_that_is_opened() -> None:
    addresses = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert addresses[1] == "OUTSIDE://127.0.0.1:${KAFKA_PORT:-9092}"


def test_one_service_builds_the_image_and_no_other_pulls_it() -> None:
    own = {name: service for name, service in SERVICES.items() if service["image"] == "arrangement-backfill"}
    assert [name for name, service in own.items() if "build" in service] == ["backfill"]
    assert {service["pull_policy"] for name, service in own.items() if name != "backfill"} == {"never"}
