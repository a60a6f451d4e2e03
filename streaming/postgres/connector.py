"""The connector that writes the topic, by the REST API of Kafka Connect (configuration key `connector_url`).

Its answers hold secrets, so nothing of them is kept but the settings that are named here.
Source: https://kafka.apache.org/documentation/#connect_rest,
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-connector-properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import Code, ConfigError, EnvironmentProblem
from schemas.json.debezium_values import DecimalMode, TimeMode
from schemas.json.parsing.placeholder import UNAVAILABLE

WAIT_S = 5.0
WHERE = "initial.postgres.connector_url"
_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
_NO_SNAPSHOT = ("no_data", "never")
"""Modes without rows of the table: the current name, and that of Debezium before 2.6."""
_DEFAULTS = {
    "slot.name": "debezium",
    "plugin.name": "decoderbufs",
    "publication.name": "dbz_publication",
    "snapshot.mode": "initial",
    "lsn.flush.mode": "connector",
    "flush.lsn.source": "true",
    "time.precision.mode": "adaptive",
    "decimal.handling.mode": "precise",
    "binary.handling.mode": "bytes",
    "skipped.operations": "t",
    "unavailable.value.placeholder": UNAVAILABLE,
}
"""Debezium's defaults."""


@dataclass(frozen=True, slots=True)
class Connector:
    """The settings of a connector, and the states of its tasks."""

    settings: Mapping[str, str]
    state: str
    states: tuple[str, ...]

    def setting(self, name: str) -> str:
        """The given value, or Debezium's default; empty without one."""
        return self.settings.get(name, _DEFAULTS.get(name, ""))


@dataclass(frozen=True, slots=True)
class Expected:
    """The settings that a connector must have. `time` and `decimal` None: its records have a schema instead."""

    slot: str
    database: str
    plugin: str
    time: TimeMode | None
    decimal: DecimalMode | None
    unavailable: str = UNAVAILABLE


def connector_at(url: str) -> Connector:
    """Request it. Raises: EnvironmentProblem(CONNECTOR_UNREACHABLE)."""
    config, status = (_answer(f"{url.rstrip('/')}/{part}") for part in ("config", "status"))
    try:
        return Connector(
            {
                name: str(config[name])
                for name in ("connector.class", "database.dbname", *_DEFAULTS)
                if name in config
            },
            str(status["connector"]["state"]),
            tuple(str(task["state"]) for task in status["tasks"]),
        )
    except (KeyError, TypeError):
        raise _unreachable("an answer that is none of Kafka Connect") from None


def check_connector(found: Connector, expected: Expected) -> None:
    """Raises: ConfigError(CONNECTOR_MISFIT), EnvironmentProblem(POSTGRES_NOT_STREAMING)."""
    misfit = next(_misfits(found, expected), None)
    if misfit is not None:
        name, wanted = misfit
        raise ConfigError(
            Code.CONNECTOR_MISFIT,
            where=WHERE,
            found=f"{name}={found.setting(name) or 'nothing'}",
            wanted=wanted,
        )
    states = {found.state, *found.states}
    if states != {"RUNNING"} or not found.states:
        shown = ", ".join(sorted(states - {"RUNNING"})) or "no task"
        raise EnvironmentProblem(
            Code.POSTGRES_NOT_STREAMING, where=WHERE, found=f"a connector that does not run ({shown})"
        )


def _misfits(found: Connector, expected: Expected) -> Iterator[tuple[str, str]]:
    """Wrong settings, each with the expected one."""
    wanted: dict[str, str | None] = {
        "connector.class": _CLASS,
        "slot.name": expected.slot,
        "database.dbname": expected.database,
        "plugin.name": expected.plugin,
        "time.precision.mode": expected.time,
        "decimal.handling.mode": expected.decimal,
        "binary.handling.mode": "bytes",
        "unavailable.value.placeholder": expected.unavailable,
    }
    for name, value in wanted.items():
        if value is not None and found.setting(name) != value:
            yield name, f"{name}={value}, as the rest of the configuration says"
    # Rows of a snapshot have no transaction, which decides which chunk holds them.
    if found.setting("snapshot.mode") not in _NO_SNAPSHOT:
        yield (
            "snapshot.mode",
            "snapshot.mode=no_data: the rows are read here, and the connector sends changes",
        )
    # The driver confirms received events, whether Kafka has them or not; manual confirmation comes too late.
    if found.setting("lsn.flush.mode") != "connector":
        yield (
            "lsn.flush.mode",
            "lsn.flush.mode=connector: the slot confirms what Kafka has, and nothing before",
        )
    if found.setting("flush.lsn.source") != "true":
        yield "flush.lsn.source", "flush.lsn.source=true: the slot confirms what Kafka has"
    if {part.strip() for part in found.setting("skipped.operations").split(",")} & set("cud"):
        yield "skipped.operations", "skipped.operations=t or none: every change has its event"


def _answer(url: str) -> Any:
    # Imported on first use: it takes a tenth of a second.
    import httpx2

    try:
        answer = httpx2.get(url, timeout=WAIT_S)
        if answer.status_code != httpx2.codes.OK:
            raise _unreachable(f"status {answer.status_code}")
        return answer.json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise _unreachable(f"no answer ({type(error).__name__})") from None


def _unreachable(found: str) -> EnvironmentProblem:
    return EnvironmentProblem(Code.CONNECTOR_UNREACHABLE, where=WHERE, found=found)
