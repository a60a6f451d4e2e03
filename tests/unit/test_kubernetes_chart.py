"""The chart: lint passes, what it renders is valid for the API, and is what the plain manifests are."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
from ruamel.yaml import YAML

from tests.kit.charts import CHART, helm, kind_of, rendered

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_300)]  # where Helm has to be built first
ROOT = Path(__file__).parents[2]
PLAIN = ROOT / "docker" / "kubernetes"
CONFIG = PLAIN / "config.yaml"
API_VERSIONS = ("1.30", "1.33", "1.37")
MONITORED: dict[str, Any] = {"monitor": {"enabled": True}}
EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry.example/backfill", "tag": "9", "pullSecrets": ["registry"]},
    "secret": {"name": "mine", "variables": {"REGISTRY_PASSWORD": "registry"}},
    "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "authorities": [
        {"configMap": "kafka-ca", "path": "/etc/backfill/kafka"},
        {"configMap": "registry-ca", "path": "/etc/backfill/registry"},
    ],
    "persistence": {"size": "1Ti", "storageClass": "fast"},
    "serviceAccount": "backfill",
    "annotations": {"team": "orders"},
    "nodeSelector": {"disk": "nvme"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "scheme": "HTTPS",
    "monitor": {"enabled": True, "labels": {"release": "prometheus"}, "tlsConfig": {"serverName": "orders"}},
}
OWN_LABELS = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "helm.sh/chart",
}


def plain() -> dict[str, dict[str, Any]]:
    found = [
        each
        for path in PLAIN.glob("*.yaml")
        if path.name not in ("config.yaml", "kustomization.yaml")
        for each in YAML(typ="safe").load_all(path)
    ]
    return {kind_of(each): each for each in found}


def without_what_is_the_charts_own(document: dict[str, Any]) -> dict[str, Any]:
    """Labels of a release, annotations, and what the API takes for granted."""
    stripped = copy.deepcopy(document)
    stripped["metadata"] = {"name": stripped["metadata"]["name"]}

    def strip(node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                strip(each)
        if isinstance(node, dict):
            for key in OWN_LABELS:
                node.pop(key, None)
            if node.get("scheme") in ("HTTP", "http"):
                del node["scheme"]
            if node.get("imagePullPolicy") == "IfNotPresent":
                del node["imagePullPolicy"]
            if "annotations" in node:
                del node["annotations"]
            for each in node.values():
                strip(each)

    strip(stripped)
    return stripped


def test_what_it_renders_is_what_the_plain_manifests_are() -> None:
    made, wanted = rendered(MONITORED, CONFIG), plain()
    assert made.pop("ConfigMap")["data"] == {"config.yaml": CONFIG.read_text()}
    assert set(made) == set(wanted)
    for kind, document in wanted.items():
        assert without_what_is_the_charts_own(made[kind]) == document, kind


@pytest.mark.parametrize("version", API_VERSIONS)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["as it is", "everything"])
def test_what_it_renders_is_valid(values: dict[str, Any], version: str) -> None:
    made = rendered(values, CONFIG, release="orders-copy")
    assert set(made) - {"ServiceMonitor"} == {
        "ConfigMap",
        "Deployment",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "Service",
        "ReadyService",
    }
    for kind, document in made.items():
        if kind != "ServiceMonitor":
            kubernetes_validate.validate(document, version, strict=True)


def test_two_releases_do_not_meet() -> None:
    made = rendered(MONITORED, CONFIG, release="orders")
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "orders"
    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert made["Service"]["spec"]["selector"] == labels
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    selected = made["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items()
    assert selected <= made["Service"]["metadata"]["labels"].items()
    assert {each["metadata"]["name"] for each in made.values()} == {"orders", "orders-ready", "orders-state"}


def test_everything_that_is_set_is_there() -> None:
    made = rendered(EVERYTHING, CONFIG)
    pod = made["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/backfill:9"
    named = {each["name"]: each for each in container["env"]}
    assert set(named) == {
        "BACKFILL_TOKEN",
        "KAFKA_PASSWORD",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "REGISTRY_PASSWORD",
    }
    assert named["REGISTRY_PASSWORD"]["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "registry"}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts["registry-ca"] == "/etc/backfill/registry"
    assert set(mounts) == {each["name"] for each in pod["volumes"]}
    assert {
        container[f"{kind}Probe"]["httpGet"]["scheme"] for kind in ("startup", "readiness", "liveness")
    } == {"HTTPS"}
    for key in ("nodeSelector", "tolerations", "affinity"):
        assert pod[key] == EVERYTHING[key]
    assert (pod["serviceAccountName"], pod["imagePullSecrets"]) == ("backfill", [{"name": "registry"}])
    claim = made["PersistentVolumeClaim"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]) == ("fast", {"storage": "1Ti"})
    (endpoint,) = made["ServiceMonitor"]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"serverName": "orders"})
    assert made["ServiceMonitor"]["metadata"]["labels"]["release"] == "prometheus"


def test_a_changed_configuration_starts_a_new_pod(tmp_path: Path) -> None:
    other = tmp_path / "config.yaml"
    other.write_text(CONFIG.read_text().replace("lanes: 2", "lanes: 4"))
    digests = {
        rendered({}, path)["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for path in (CONFIG, other)
    }
    assert len(digests) == 2


def test_the_claim_may_be_another_or_none(tmp_path: Path) -> None:
    def state_of(made: dict[str, dict[str, Any]]) -> dict[str, Any]:
        volumes = made["Deployment"]["spec"]["template"]["spec"]["volumes"]
        by_name: dict[str, dict[str, Any]] = {each["name"]: each for each in volumes}
        return by_name["state"]

    made = rendered({"persistence": {"existingClaim": "mine"}}, CONFIG)
    assert state_of(made) == {"name": "state", "persistentVolumeClaim": {"claimName": "mine"}}
    assert "PersistentVolumeClaim" not in made

    without = {"persistence": {"enabled": False}}
    done = helm("template", without, CONFIG)
    assert done.returncode != 0
    assert "has to be a URI" in done.stderr
    stored = tmp_path / "config.yaml"
    stored.write_text(
        CONFIG.read_text().replace("state: /var/lib/backfill/state", "state: s3://bucket/orders")
    )
    made = rendered(without, stored)
    assert "emptyDir" in state_of(made)
    assert "PersistentVolumeClaim" not in made


def test_mistakes_are_refused() -> None:
    done = helm("template", {}, None)
    assert done.returncode != 0
    assert "--set-file config=config.yaml" in done.stderr
    done = helm("template", {"replicas": 2}, CONFIG)
    assert done.returncode != 0
    assert "replicas" in done.stderr


def test_lint_has_nothing_against_it() -> None:
    done = helm("lint", EVERYTHING, CONFIG)
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout
    assert "[WARNING]" not in done.stdout


def test_it_is_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = YAML(typ="safe").load(CHART / "Chart.yaml")
    assert chart["appVersion"] == chart["version"] == version
