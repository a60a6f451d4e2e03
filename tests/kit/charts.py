"""Helm itself: what its lint says of the chart, and what it renders.

It is the one that is installed, or is built from its Go module in CI. A build takes two minutes of CPU and is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from streaming.runtime.paths import jar_cache

CHART = Path(__file__).parents[2] / "docker" / "kubernetes" / "chart"
_MODULE = Path(__file__).with_name("helm")
_BUILD_S = 1_200


@cache
def _program() -> str | None:
    if (installed := shutil.which("helm")) or shutil.which("go") is None:
        return installed
    # Beside the jars; named after the lock, so that another version is another file.
    lock = hashlib.sha256((_MODULE / "go.sum").read_bytes()).hexdigest()
    built = jar_cache().parent / "tests" / f"helm-{lock[:16]}"
    if not built.exists():
        if "CI" not in os.environ:
            return None
        built.parent.mkdir(parents=True, exist_ok=True)
        command = ["go", "build", "-buildvcs=false", "-o", str(built), "helm.sh/helm/v3/cmd/helm"]
        try:
            subprocess.run(command, cwd=_MODULE, capture_output=True, timeout=_BUILD_S, check=True)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
            return None
    return str(built)


def helm(
    command: str, values: Mapping[str, Any], config: Path | None, *, release: str = "backfill"
) -> subprocess.CompletedProcess[str]:
    """`helm lint` or `helm template` of the chart with these values and the text of a configuration.

    Skips the test where there is no Helm, and it can't be built.
    """
    program = _program()
    if program is None:
        pytest.skip(
            "no Helm: it is not installed, and is built in CI alone, where Go and its modules are there"
        )
    called = [program, command, *([release] if command == "template" else []), str(CHART), "--values", "-"]
    called += [
        "--kube-version",
        "1.30.0",
    ]  # without a cluster, that of the libraries that Helm was built with
    called += [] if config is None else ["--set-file", f"config={config}"]
    return subprocess.run(
        called, input=json.dumps(values), capture_output=True, text=True, timeout=60, check=False
    )


def rendered(
    values: Mapping[str, Any], config: Path, *, release: str = "backfill"
) -> dict[str, dict[str, Any]]:
    """The chart's manifests for these values by kind: one of each, and one more Service of ready ones alone."""
    done = helm("template", values, config, release=release)
    assert done.returncode == 0, done.stderr
    made = [each for each in YAML(typ="safe").load_all(done.stdout) if each]
    by_kind = {kind_of(each): each for each in made}
    assert len(by_kind) == len(made)
    return by_kind


def kind_of(manifest: Mapping[str, Any]) -> str:
    """The kind, or ReadyService."""
    is_ready = manifest["kind"] == "Service" and manifest["metadata"]["name"].endswith("-ready")
    return "ReadyService" if is_ready else str(manifest["kind"])
