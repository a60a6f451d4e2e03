"""The start of a copy, from the configuration: access, checks, and the expected connector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from schemas.formats.debezium import DebeziumFormat
from schemas.json.debezium_values import TimeMode
from schemas.kinds.postgres import PostgresStart
from schemas.table import TableSchema
from state.initial.start import Identity, Survey
from streaming.postgres.catalog import server_of, slot_of
from streaming.postgres.checks import Declared, check_server, check_slot
from streaming.postgres.columns import EventForms
from streaming.postgres.connector import Connector, Expected, check_connector, connector_at
from streaming.postgres.reader import ChunkReader
from streaming.postgres.session import Access, Session


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
        check_connector(connector, _expected(access, declared, upstream))
    reader, identity = ChunkReader.open(access, declared, starts=True)
    try:
        return Begun(identity, reader.survey(start.readers), declared)
    finally:
        reader.close()


def _expected(access: Access, declared: Declared, upstream: DebeziumFormat) -> Expected:
    session = Session.open(access)
    try:
        return expected_of(session, declared, upstream)
    finally:
        session.close()


def expected_of(session: Session, declared: Declared, upstream: DebeziumFormat) -> Expected:
    """The settings that the connector must have. Raises: as `Session`, `check_server` and `check_slot`."""
    server = server_of(session)
    check_server(server)
    slot = check_slot(slot_of(session, declared.slot), server, must_stream=False)
    return Expected(
        slot.name, server.database, slot.plugin or "", upstream.time, upstream.decimal, upstream.unavailable
    )
