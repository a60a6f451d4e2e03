"""Checks of the table of PostgreSQL that a state starts from: server, table, rights, key, slot and events."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.errors import BackfillError, Code
from schemas.formats.debezium import DebeziumFormat
from schemas.kinds.initial import PostgresStart
from schemas.settings.config import ServiceConfig
from state.storage import Storage
from streaming.postgres.catalog import FoundTable, ReplicationSlot, Server, server_of, slot_of, table_of
from streaming.postgres.checks import (
    Declared,
    check_columns,
    check_events,
    check_is_table,
    check_key,
    check_rights,
    check_server,
    check_slot,
)
from streaming.postgres.session import Gone, Session
from streaming.postgres.start import (
    Connector,
    access_of,
    check_connector,
    connector_at,
    declared_of,
    expected_of,
)
from streaming.service.checks.surroundings import Finding, Grade
from streaming.service.initial.database import debezium_of

_MUCH_BYTES = 10 * 1024**3
_SUBJECT = "postgres"
_IDENTITIES = {"d": "DEFAULT", "f": "FULL", "i": "USING INDEX", "n": "NOTHING"}


def findings(config: ServiceConfig, start: PostgresStart) -> Iterator[Finding]:
    """A line for each check; the server alone where it can't be reached or read from."""
    connector = None
    try:
        connector = None if start.connector_url is None else connector_at(start.connector_url)
    except BackfillError as error:
        yield Finding.of("connector", error)
    declared = declared_of(start, config.table, debezium_of(config), connector)
    try:
        session = Session.open(access_of(start))
        try:
            yield from _findings(session, declared, has_begun=_has_begun(config))
            if connector is not None:
                yield _connector(session, connector, declared, debezium_of(config))
        finally:
            session.close()
    except Gone as gone:
        yield Finding.of(_SUBJECT, gone.problem())
    except BackfillError as error:
        yield Finding.of(_SUBJECT, error)


def _connector(
    session: Session, connector: Connector, declared: Declared, upstream: DebeziumFormat
) -> Finding:
    said = f"running, with {len(connector.states)} tasks and the settings that are needed"
    return Finding.by(
        "connector",
        lambda: check_connector(connector, expected_of(session, declared, upstream)),
        said,
    )


def _has_begun(config: ServiceConfig) -> bool:
    return Storage(str(config.state)).exists("journal")


def _findings(session: Session, declared: Declared, *, has_begun: bool) -> Iterator[Finding]:
    server = server_of(session)
    check_server(server)
    yield Finding.ok(_SUBJECT, f"version {server.version // 10_000}, database {server.database}, a primary")
    slot = slot_of(session, declared.slot)
    yield _slot(declared, slot, server, has_begun)
    yield from _table(declared, table_of(session, declared.name), server, slot)


def _slot(declared: Declared, slot: ReplicationSlot | None, server: Server, has_begun: bool) -> Finding:
    subject = f"slot {declared.slot}"
    try:
        slot = check_slot(slot, server, must_stream=False)
        check_slot(slot, server, must_stream=True)
    except BackfillError as error:
        finding = Finding.of(subject, error)
        # A state that has begun waits for its connector, which a new one refuses to begin without.
        waits = has_begun and error.code is Code.POSTGRES_NOT_STREAMING
        verdict = Grade.WARNING if waits else Grade.FAILED
        kept = "" if slot is None else f", {_kept(slot)}"
        found = f"{finding.found}{kept}"
        return Finding(subject, verdict, found, finding.next_step, None if waits else error)
    text = f"{slot.plugin}, active, {_kept(slot)}"
    if slot.endangered:
        step = "raise max_slot_wal_keep_size, and look why the connector is behind: a slot that is lost is a new start"
        return Finding.warning(subject, f"{text}, which the server is about to remove", step)
    if (slot.retained_bytes or 0) > _MUCH_BYTES:
        step = "look why the connector confirms nothing: is it behind, has it heartbeat.interval.ms?"
        return Finding.warning(subject, text, step)
    return Finding.ok(subject, text)


def _kept(slot: ReplicationSlot) -> str:
    if slot.retained_bytes is None:
        return "none of the log is kept for it"
    return f"{slot.retained_bytes / 1024**2:,.1f} MiB of the log are kept for it"


def _table(
    declared: Declared, found: FoundTable | None, server: Server, slot: ReplicationSlot | None
) -> Iterator[Finding]:
    subject = f"table {declared.name}"
    try:
        table = check_is_table(found)
    except BackfillError as error:
        yield Finding.of(subject, error)
        return
    columns = Finding.by(
        f"{subject}, columns",
        lambda: check_columns(declared, table),
        f"{len(declared.table.columns)}, as declared",
    )
    yield columns
    yield Finding.by(f"{subject}, rights", lambda: check_rights(table), "SELECT, and no row is hidden")
    if columns.verdict is Grade.OK:
        key = ", ".join(table.primary_key)
        yield Finding.by(f"{subject}, key", lambda: check_key(declared, table, server), key)
    if slot is not None:
        identity = f"REPLICA IDENTITY {_IDENTITIES.get(table.identity, table.identity)}"
        names = ", ".join(each.name for each in table.publications)
        said = f"{identity}, published by {names}" if names else identity
        yield Finding.by(f"{subject}, events", lambda: check_events(declared, table, slot), said)
