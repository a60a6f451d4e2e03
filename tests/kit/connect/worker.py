"""Kafka Connect, standalone: a worker whose connectors are made, looked at and deleted by its REST API."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from streaming.broker.embedded import free_port
from streaming.runtime.java.jars import ensure_all, java, listed
from tests.kit.archives import Archive
from tests.kit.real import await_answer, await_condition

PLUGINS = (
    Archive(
        "io.debezium:debezium-connector-postgres:3.6.1.Final",
        "408b00c073b27ddaa7af34684f60fcf5bbf6605de68a8662ec9462f2a88880d2",
        classifier="plugin",
    ),
    Archive(  # the newest that is published
        "io.debezium:debezium-connector-mariadb:3.5.0.Final",
        "1ccab832edc5d1e667607361905e70689a308c9e5cb1561d79808084811e938f",
        classifier="plugin",
    ),
    Archive(
        "io.debezium:debezium-connector-jdbc:3.6.0.Final",
        "c23af8d416f0f801ffb0271b1a8fd9b5360ff8d66b0dd650e066bb56ecfddc05",
        classifier="plugin",
    ),
)
JARS = Path(__file__).with_name("jars.toml")
AVRO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
STOP_S = 30.0


def avro_by(registry: str) -> dict[str, str]:
    """A connector's settings for keys and values in Avro, by Apicurio's registry with this URL of Confluent's API."""
    settings = {
        "": AVRO_CONVERTER,
        ".apicurio.registry.url": registry.replace("/ccompat/v7", "/registry/v2"),
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.if-exists": "RETURN_OR_UPDATE",
        ".apicurio.registry.headers.enabled": "false",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
    }
    return {f"{half}.converter{name}": value for half in ("key", "value") for name, value in settings.items()}


_HEAP = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PROPERTIES = """\
bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms={flush}
listeners=http://127.0.0.1:{port}
plugin.path={folder}/plugins
plugin.discovery=service_load
topic.creation.enable=true
connector.client.config.override.policy=All
"""


class Connect:
    """A worker in `folder`. Its connectors and their offsets survive `kill` and `start`."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder, self._bootstrap = folder, bootstrap
        self._url = f"http://127.0.0.1:{free_port()}"
        self._connectors: dict[str, Mapping[str, str]] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Unpack the plugins and start it; returns before it answers."""
        plugins = self._folder / "plugins"
        for archive in PLUGINS:
            archive.unpack(plugins)
        converter = plugins / "converter"
        converter.mkdir()
        for jar in ensure_all(listed("converter", JARS)):
            (converter / jar.name).symlink_to(jar)
        # A worker finds plugins by this entry, which Apicurio's jar lacks.
        with ZipFile(converter / "services.jar", "w") as services:
            services.writestr(
                "META-INF/services/org.apache.kafka.connect.storage.Converter", f"{AVRO_CONVERTER}\n"
            )
        self.start()

    def start(self, *, flush_interval_ms: int = 500) -> None:
        """Start it, or start it again; returns before it answers.

        Records written since the last flush of its offsets are redelivered after a kill.
        """
        port = self._url.rsplit(":", 1)[1]
        properties = self._folder / "worker.properties"
        properties.write_text(
            _PROPERTIES.format(
                bootstrap=self._bootstrap, folder=self._folder, port=port, flush=flush_interval_ms
            ),
            encoding="utf-8",
        )
        class_path = ":".join(map(str, ensure_all(listed("connect", JARS))))
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = [str(java()), *_HEAP, "-cp", class_path, main, str(properties)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)

    def await_ready(self) -> None:
        """Wait until it answers; what it had as connectors it has again."""
        await_answer(lambda: self._ask("GET", "/connectors"), OSError, self._process, self._folder / "log")
        for name, config in self._connectors.items():
            self._ask("POST", "/connectors", {"name": name, "config": dict(config)})

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it in order, by force if that takes long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """A connector of one task."""
        self._connectors[name] = config
        self._ask("POST", "/connectors", {"name": name, "config": dict(config)})

    def delete(self, name: str) -> None:
        """End a connector, unless it is gone."""
        if self._connectors.pop(name, None) is not None:
            self._ask("DELETE", f"/connectors/{name}")

    def await_running(self, name: str) -> None:
        """Wait until its task runs. A source may not have begun to stream then."""
        await_condition(lambda: self.state(name) != "UNASSIGNED", f"a task of {name}")
        assert self.state(name) == "RUNNING", self.failure(name)

    def state(self, name: str) -> str:
        """Of its task: RUNNING, FAILED; UNASSIGNED as long as there is none."""
        return str(self._task(name).get("state", "UNASSIGNED"))

    def failure(self, name: str) -> str:
        """Why its task ended, with every cause; empty as long as it has not."""
        return str(self._task(name).get("trace", ""))

    def offsets(self, name: str) -> dict[str, Any]:
        """The offset up to which Kafka has acknowledged a source, in its own form; empty before that."""
        found = self._ask("GET", f"/connectors/{name}/offsets")["offsets"]
        return found[0]["offset"] if found else {}

    def url_of(self, name: str) -> str:
        """Of a connector, in the REST API."""
        return f"{self._url}/connectors/{name}"

    def log(self) -> str:
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def _task(self, name: str) -> dict[str, Any]:
        try:
            tasks = self._ask("GET", f"/connectors/{name}/status")["tasks"]
        except urllib.error.HTTPError as error:
            if error.code == 404:  # it is being made
                return {}
            raise
        return tasks[0] if tasks else {}

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 (our own address)
            f"{self._url}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=90) as answer:  # noqa: S310
            content = answer.read()
        return json.loads(content) if content else None
