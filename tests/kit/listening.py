"""An embedded broker with further listeners than the plain one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streaming.broker.embedded import EmbeddedBroker, free_port

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Listener:
    """A further listener: `protocol` is Kafka's (`SASL_SSL`), `settings` are the broker's for this listener alone.

    Their names lack the prefix `listener.name.<name>.`, which is added.
    """

    name: str
    protocol: str
    settings: Mapping[str, str]

    def properties(self) -> str:
        """Lines of the broker's properties; line ends and backslashes within a value are escaped."""
        escaped = {
            key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in self.settings.items()
        }
        return "".join(f"listener.name.{self.name.lower()}.{key}={value}\n" for key, value in escaped.items())


class ListeningBroker(EmbeddedBroker):
    """Its listeners come beside the plain one, each on a free port; `java_options` are further ones of its JVM."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        data: Path,
        log: Path,
        settings: Mapping[str, str],
        java_options: Sequence[str] = (),
    ) -> None:
        super().__init__(data=data, log=log, settings=settings)
        self._listeners, self._options = listeners, java_options
        self._ports = {each.name: free_port() for each in listeners}

    def address(self, listener: str) -> str:
        """The address of a listener, once the broker has been started."""
        return f"{_HOST}:{self._ports[listener]}"

    def _properties(self) -> str:
        given = super()._properties()
        lines = dict(line.partition("=")[::2] for line in given.splitlines())
        further = "".join(f",{each.name}://{self.address(each.name)}" for each in self._listeners)
        protocols = "".join(f",{each.name}:{each.protocol}" for each in self._listeners)
        more = {"listeners": further, "advertised.listeners": further}
        more["listener.security.protocol.map"] = protocols
        # Of a property that is there twice the last one counts.
        again = "".join(f"{name}={lines[name]}{value}\n" for name, value in more.items())
        return given + again + "".join(each.properties() for each in self._listeners)

    def _java(self, jars: Sequence[Path], options: list[str], main: str, *arguments: str) -> list[str]:
        return super()._java(jars, [*options, *self._options], main, *arguments)
