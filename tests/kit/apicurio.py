"""Apicurio's schema registry as it is published, in memory, with Confluent's API: fetched once, checked, run."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streaming.broker.embedded import free_port
from streaming.runtime.java.jars import java
from tests.kit.archives import Archive

REGISTRY = Archive(
    "io.apicurio:apicurio-registry-app:3.0.9",
    "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43",
    classifier="all",
)
_RUNNER = "apicurio-registry-app-3.0.9-runner.jar"
READY_S = 120.0


@dataclass(frozen=True, slots=True)
class Apicurio:
    """One that runs. `url` is that of Confluent's API."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def apicurio(folder: Path) -> Iterator[Apicurio]:
    """Unpacked below `folder` and ready; afterwards it is gone."""
    REGISTRY.unpack(folder)
    port = free_port()
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    command = [str(java()), *options, "-jar", str(folder / _RUNNER)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        _await_ready(f"http://127.0.0.1:{port}/apis/ccompat/v7", process)
        yield Apicurio(f"http://127.0.0.1:{port}/apis/ccompat/v7", process)
    finally:
        process.kill()
        process.wait()


def _await_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the registry ended"
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):  # noqa: S310 (our own address)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError("the registry did not come up")
