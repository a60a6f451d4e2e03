"""Container files and manifests: valid, and what they say fits the image, the service and one another."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
from fastapi.testclient import TestClient
from ruamel.yaml import YAML

from schemas.errors import Code, Fenced
from schemas.settings.config import load
from schemas.settings.documents import read_mapping
from schemas.settings.limits import parse_duration
from streaming.observe.middleware import ApiAuth
from streaming.observe.status_cache import StatusCache
from streaming.runtime.java.jars import spark_home
from streaming.service.vitals import Vitals
from tests.kit.api_requests import idle_api
from tests.kit.charts import kind_of
from tests.kit.reports import SOURCE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "kubernetes"
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
API_VERSIONS = ("1.30", "1.33", "1.37")
_OTHERS = {"Kustomization", "ServiceMonitor"}
"""Kinds that are not the API's own."""


def documents() -> list[dict[str, Any]]:
    files = [path for path in sorted(FOLDER.glob("*.yaml")) if path.name != "config.yaml"]
    return [each for path in files for each in YAML(typ="safe").load_all(path)]


BY_KIND = {kind_of(each): each for each in documents()}
DEPLOYMENT = BY_KIND["Deployment"]["spec"]
POD = DEPLOYMENT["template"]["spec"]
(CONTAINER,) = POD["containers"]


@pytest.mark.parametrize("version", API_VERSIONS)
@pytest.mark.parametrize("kind", sorted(set(BY_KIND) - _OTHERS))
def test_manifests_are_valid(kind: str, version: str) -> None:
    kubernetes_validate.validate(BY_KIND[kind], version, strict=True)


def test_a_mistake_would_be_seen() -> None:
    wrong = {**BY_KIND["Service"], "spec": {**BY_KIND["Service"]["spec"], "port": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, API_VERSIONS[0], strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_what_kubectl_makes_of_them_is_valid_and_complete() -> None:
    command = ["kubectl", "kustomize", str(FOLDER)]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {kind_of(each): each for each in YAML(typ="safe").load_all(made)}
    assert set(found) == set(BY_KIND) - _OTHERS | {"ConfigMap"}
    for each in found.values():
        kubernetes_validate.validate(each, API_VERSIONS[0], strict=True)
    name = found["ConfigMap"]["metadata"]["name"]
    volumes = found["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "config", "configMap": {"name": name}} in volumes


def test_the_configuration_is_accepted_with_what_the_pod_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = {each["name"] for each in CONTAINER["env"] if "secretKeyRef" in each["valueFrom"]}
    for name in secrets:
        monkeypatch.setenv(name, "a secret of the test")
    declared = read_mapping(FOLDER / "config.yaml", Code.CONFIG_INVALID, expected="a configuration")
    ca_file = declared["kafka"].pop("ca_file")
    (tmp_path / "config.yaml").write_text(
        (FOLDER / "config.yaml").read_text().replace(f"  ca_file: {ca_file}\n", "")
    )
    config = load(tmp_path / "config.yaml")
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert Path(ca_file).parent == Path(mounts["kafka-ca"])
    assert Path(config.state).is_relative_to(mounts["state"])
    (port,) = CONTAINER["ports"]
    assert config.http.port == port["containerPort"]
    assert {config.http.token_env, declared["kafka"]["password_env"]} == secrets


def test_the_pod_fits_the_image() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert CONTAINER["image"] == f"arrangement-backfill:{version}"
    assert f"--uid {POD['securityContext']['runAsUser']}" in DOCKERFILE
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert f"BACKFILL_CONFIG={mounts['config']}" in DOCKERFILE
    assert f"TMPDIR={mounts['scratch']}" in DOCKERFILE
    assert f"VOLUME {mounts['state']}\n" in DOCKERFILE
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    assert POD["terminationGracePeriodSeconds"] > 30


def test_probes_ask_for_paths_that_there_are_and_are_let_in() -> None:
    vitals = Vitals("up", 1_000, late_s=30.0, injects=False)
    cache = StatusCache("up", "orders", "me", 4, vitals, SOURCE)
    door = ApiAuth("a token of the test", is_local=False)
    hosts = read_mapping(FOLDER / "config.yaml", Code.CONFIG_INVALID, expected="a file")["http"]["hosts"]
    app = idle_api(cache, door, hosts)
    asked = {CONTAINER[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    with TestClient(app, base_url="http://10.1.2.3:8080") as client:
        assert {path: client.get(path).status_code for path in asked} == {"/healthz": 200, "/readyz": 503}
        assert client.get("/metrics").status_code == 401
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_selectors_and_references_meet() -> None:
    labels = DEPLOYMENT["template"]["metadata"]["labels"]
    assert DEPLOYMENT["selector"]["matchLabels"] == labels
    assert BY_KIND["Service"]["spec"]["selector"] == labels
    assert BY_KIND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    monitor = BY_KIND["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"] == labels
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in BY_KIND["Service"]["spec"]["ports"]}
    token = next(each for each in CONTAINER["env"] if each["name"] == "BACKFILL_TOKEN")
    assert endpoint["authorization"]["credentials"] == token["valueFrom"]["secretKeyRef"]
    claims = {
        each["persistentVolumeClaim"]["claimName"]
        for each in POD["volumes"]
        if "persistentVolumeClaim" in each
    }
    assert claims == {BY_KIND["PersistentVolumeClaim"]["metadata"]["name"]}


def test_the_page_says_what_the_files_hold() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    assert {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"} <= set(
        re.findall(r"`([\w-]+\.yaml)`", page)
    )
    assert f"status {Fenced.exit_status}" in page


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


def test_a_killed_service_leaves_nothing_that_its_next_start_does_not_sweep() -> None:
    """Spark's variable goes before `spark.local.dir`, which is the service's folder below TMPDIR."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"(\w+)=/var/lib/backfill/tmp\b", dockerfile) == ["TMPDIR"]
