"""Apicurio's schema registry as it is published, in memory, with Confluent's API: fetched once, checked, run."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streaming.broker.embedded import free_port
from streaming.runtime.java.jars import java
from tests.kit.archives import Archive
from tests.kit.real import await_answer

REGISTRY = Archive(
    "io.apicurio:apicurio-registry-app:3.0.9",
    "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43",
    classifier="all",
)
_RUNNER = "apicurio-registry-app-3.0.9-runner.jar"


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
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def ask() -> None:
        urllib.request.urlopen(f"{url}/subjects", timeout=5).close()  # noqa: S310 (our own address)

    try:
        await_answer(ask, OSError, process, folder / "log")
        yield Apicurio(url, process)
    finally:
        process.kill()
        process.wait()
