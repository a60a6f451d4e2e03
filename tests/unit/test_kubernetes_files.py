"""The manifests: valid for the API, and what they say fits the image, the service and one another."""

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
from streaming.observe.middleware import ApiAuth
from streaming.observe.status_cache import StatusCache
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
