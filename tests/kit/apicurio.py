"""Apicurio's schema registry as it is published, in memory, with Confluent's API: fetched once, checked, run."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streaming.runtime.java.home import java
from streaming.runtime.java.jars import ivy
from streaming.runtime.paths import jar_cache

NAME, VERSION = "apicurio-registry-app", "3.0.9"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="local" module="kit"/><configurations><conf name="default"/></configurations><dependencies>
<dependency org="io.apicurio" name="{NAME}" rev="{VERSION}" transitive="false" conf="default-&gt;*">
<artifact name="{NAME}" type="tar.gz" ext="tar.gz" m:classifier="all"/></dependency>
</dependencies></ivy-module>"""
READY_S = 120.0


@dataclass(frozen=True, slots=True)
class Apicurio:
    """One that runs. `url` is that of Confluent's API."""

    url: str
    process: subprocess.Popen[bytes]


def archive() -> Path:
    """Its archive on this machine, 110 MB. Raises: EnvironmentProblem when it can't be fetched."""
    path = jar_cache() / f"{NAME}-{VERSION}-all.tar.gz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetch-") as scratch:
            ivy(_MODULE, Path(scratch), "[artifact]-[revision].[ext]")
            [fetched] = Path(scratch).iterdir()
            assert _digest(fetched) == SHA256
            fetched.replace(path)
    assert _digest(path) == SHA256, f"{path} is not the archive that is listed"
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def apicurio(folder: Path) -> Iterator[Apicurio]:
    """Unpacked below `folder` and ready; afterwards it is gone."""
    with tarfile.open(archive()) as content:
        content.extractall(folder, filter="data")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    command = [str(java()), *options, "-jar", str(folder / f"{NAME}-{VERSION}-runner.jar")]
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
