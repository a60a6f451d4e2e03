"""Errors of a table that starts from a table of PostgreSQL."""

from __future__ import annotations

from schemas.advice.advice import Advice
from schemas.codes import Code

_NOTHING_MADE = "nothing was read from it"
POSTGRES = {
    Code.POSTGRES_UNREACHABLE: Advice(
        "a PostgreSQL server that answers there",
        "start it, or correct the connection string; the service tries again by itself once it runs",
    ),
    Code.POSTGRES_REFUSED: Advice(
        "a server that lets this role in",
        "check role, password, database and TLS settings of the connection string, and pg_hba.conf of the server",
    ),
    Code.POSTGRES_FAILED: Advice(
        "the server to carry out a query", "look the SQLSTATE up, and read the server's log"
    ),
    Code.POSTGRES_UNFIT: Advice(
        "a primary server with PostgreSQL 13 or newer",
        f"name the primary in the connection string, or upgrade it; {_NOTHING_MADE}",
    ),
    Code.POSTGRES_RIGHTS: Advice(
        "a role that may read the table",
        "GRANT USAGE ON SCHEMA and GRANT SELECT ON TABLE to it; it needs nothing else",
    ),
    Code.POSTGRES_TABLE_MISSING: Advice(
        "a table, as initial.postgres.table says",
        f"correct the name: schema.table, with quotes where SQL needs them; {_NOTHING_MADE}",
    ),
    Code.POSTGRES_TABLE_MISFIT: Advice(
        "every declared column, with a type that its events have too",
        f"correct the declaration, or leave the column out of it; {_NOTHING_MADE}",
    ),
    Code.POSTGRES_TABLE_CHANGED: Advice(
        "the table that the copy began with",
        "bring that table back; else begin with a new state folder and new output topics",
    ),
    Code.POSTGRES_KEY_MISFIT: Advice(
        "the primary key ({key}), as table.primary_key says",
        "declare the key that the table has, in its order; a table without a primary key can't be followed",
    ),
    Code.POSTGRES_KEY_ORDER: Advice(
        "a key that the database orders as its values are ordered here: numbers, days, uuid, text with the collation C",
        "say initial.postgres.mode: whole, which needs no order and holds one snapshot for the whole copy",
    ),
    Code.POSTGRES_ROWS_HIDDEN: Advice(
        "a role that sees all rows", "read with the table's owner, or a role with BYPASSRLS"
    ),
    Code.POSTGRES_EVENTS_MISFIT: Advice(
        "a table whose rows, columns and changes are all in its own events",
        "change the publication, the replica identity or the table, or name the table that the events are of",
    ),
    Code.POSTGRES_SLOT_MISSING: Advice(
        "the replication slot of the connector",
        "name it as slot.name of the connector says, and start the connector first",
    ),
    Code.POSTGRES_SLOT_MISFIT: Advice(
        "a logical slot of the database {database}, of the plugin {plugins}",
        "name the slot of the connector that writes this topic",
    ),
    Code.POSTGRES_NOT_STREAMING: Advice(
        "a connector that streams, so that no change is missed",
        "start or resume the connector; see its status in Kafka Connect",
    ),
    Code.CONNECTOR_UNREACHABLE: Advice(
        "Kafka Connect with this connector, as initial.postgres.connector_url says",
        "start Kafka Connect, or correct the URL: http(s)://host:port/connectors/name",
    ),
    Code.CONNECTOR_MISFIT: Advice(
        "{wanted}",
        "change the connector's configuration, or this one",
    ),
}
