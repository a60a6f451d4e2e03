"""The start of a copy, from the configuration: access, checks, and the connector that writes the topic.

The connector is requested by the REST API of Kafka Connect (configuration key `connector_url`). Its answers hold
secrets, so nothing of them is kept but the settings that are named here.
Source: https://kafka.apache.org/documentation/#connect_rest,
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-connector-properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, get_args

from schemas.errors import Code, ConfigError, EnvironmentProblem
from schemas.formats.debezium import DebeziumFormat
from schemas.json.debezium_values import DecimalMode, TimeMode
from schemas.json.placeholder import UNAVAILABLE
from schemas.kinds.initial import PostgresStart
from schemas.table import TableSchema
from state.initial.start import Identity, Survey
from streaming.postgres.catalog import server_of, slot_of
from streaming.postgres.checks import Declared, check_server, check_slot
from streaming.postgres.columns import EventForms
from streaming.postgres.reader import ChunkReader
from streaming.postgres.session import Access, Session

WAIT_S = 5.0
WHERE = "initial.postgres.connector_url"
_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
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
_FIXED = {
    # Rows of a snapshot have no transaction, which decides which chunk holds them. `never`: before Debezium 2.6.
    "snapshot.mode": (
        ("no_data", "never"),
        "snapshot.mode=no_data: the rows are read here, and the connector sends changes",
    ),
    # The driver confirms received events, whether Kafka has them or not; manual confirmation comes too late.
    "lsn.flush.mode": (
        ("connector",),
        "lsn.flush.mode=connector: the slot confirms what Kafka has, and nothing before",
    ),
    "flush.lsn.source": (("true",), "flush.lsn.source=true: the slot confirms what Kafka has"),
}
"""Settings with the values that they may have, and the text for others."""


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
    wrong = next(_incompatible_settings(found, expected), None)
    if wrong is not None:
        name, wanted = wrong
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


def _incompatible_settings(found: Connector, expected: Expected) -> Iterator[tuple[str, str]]:
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
    for name, (values, text) in _FIXED.items():
        if found.setting(name) not in values:
            yield name, text
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


@dataclass(frozen=True, slots=True)
class Begun:
    """A checked copy that may begin. `identity` and `survey` are decided once, and kept with the state."""

    identity: Identity
    survey: Survey
    declared: Declared


def access_of(start: PostgresStart) -> Access:
    """The access to the configured database."""
    return Access(start.dsn, start.statement_timeout, start.allow_plaintext)


def declared_of(
    start: PostgresStart, table: TableSchema, upstream: DebeziumFormat, connector: Connector | None = None
) -> Declared:
    """The declaration in the configuration, completed by the connector's settings."""
    scale_is_in_events = (
        upstream.encoding != "json" or upstream.decimal == "string" or upstream.time == "adaptive"
    )
    forms = EventForms(upstream.time, scale_is_in_events)
    declared = Declared(table, start.table, start.slot, start.mode, forms)
    if connector is None:
        return declared
    named = connector.setting("time.precision.mode")
    time = upstream.time or next((mode for mode in get_args(TimeMode) if mode == named), None)
    publication = connector.setting("publication.name")
    return replace(declared, forms=replace(forms, time=time), publication=publication)


def begin(start: PostgresStart, table: TableSchema, upstream: DebeziumFormat) -> Begun:
    """Check the conditions of a copy, and plan it.

    Read the topic's ends before: a later commit has its event behind them, or is seen by the first snapshot.

    Raises: Gone for a passing error; ConfigError, EnvironmentProblem: those of `Session`, `checks` and `connector`.
    """
    connector = None if start.connector_url is None else connector_at(start.connector_url)
    declared = declared_of(start, table, upstream, connector)
    access = access_of(start)
    if connector is not None:
        with closing(Session.open(access)) as session:
            check_connector(connector, expected_of(session, declared, upstream))
    reader, identity = ChunkReader.open(access, declared, starts=True)
    with closing(reader):
        return Begun(identity, reader.survey(start.readers), declared)


def expected_of(session: Session, declared: Declared, upstream: DebeziumFormat) -> Expected:
    """The settings that the connector must have. Raises: as `Session`, `check_server` and `check_slot`."""
    server = server_of(session)
    check_server(server)
    slot = check_slot(slot_of(session, declared.slot), server, must_stream=False)
    return Expected(
        slot.name, server.database, slot.plugin or "", upstream.time, upstream.decimal, upstream.unavailable
    )
