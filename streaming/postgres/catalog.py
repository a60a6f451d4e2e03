"""Facts from PostgreSQL's catalogs: a table, its key, publications and slot. `checks` judges them.

Rows of catalogs whose columns depend on the version are read as JSON, where absent columns are just missing. Everything
here is readable for any role.
Source: https://www.postgresql.org/docs/current/catalogs.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming.postgres.columns import DatabaseType
from streaming.postgres.session import Session

_SERVER = """
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_database(),
       (SELECT system_identifier::text FROM pg_control_system()), pg_encoding_to_char(d.encoding), to_jsonb(d)
FROM pg_database d WHERE d.datname = current_database()
"""
_TABLE = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind, c.relpersistence, c.relreplident,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid), row_security_active(c.oid),
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
WITH RECURSIVE base AS (
  SELECT a.attnum, a.atttypid AS type, a.atttypmod AS modifier
  FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT b.attnum, t.typbasetype, CASE WHEN t.typtypmod = -1 THEN b.modifier ELSE t.typtypmod END
  FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
)
SELECT a.attname, t.typname, t.typtype, b.modifier, a.attgenerated <> '', to_jsonb(l)
FROM base b JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'
JOIN pg_attribute a ON a.attrelid = %s AND a.attnum = b.attnum
LEFT JOIN pg_collation l ON l.oid = a.attcollation
ORDER BY a.attnum
"""
_INDEXES = """
SELECT i.indisprimary, i.indisreplident,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k (number, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_index i WHERE i.indrelid = %s AND (i.indisprimary OR i.indisreplident)
"""
_PUBLICATIONS = """
SELECT p.pubname, p.pubinsert AND p.pubupdate AND p.pubdelete, to_jsonb(t)
FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname
WHERE t.schemaname = %s AND t.tablename = %s ORDER BY p.pubname
"""
_SLOT = """
SELECT to_jsonb(s),
       CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint END
FROM pg_replication_slots s WHERE s.slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A server: the facts of `_SERVER`. `system` identifies its cluster of databases.

    `is_standby`: it follows another server.
    """

    version: int
    is_standby: bool
    database: str
    system: str
    encoding: str
    collation: Mapping[str, Any]
    """The row of `pg_database`."""


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of the table. `collation` is its row of `pg_collation`, None for a type without one."""

    name: str
    type: DatabaseType
    generated: bool
    collation: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication that has the table. `columns` None: all of them."""

    name: str
    whole: bool
    """True if it has inserts, updates and deletes."""
    columns: frozenset[str] | None
    filtered: bool


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of the database; its facts from `oid` on are those of `_TABLE`, in its order.

    `kind`, `persistence` and `identity` are letters of `pg_class`.
    """

    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...]
    """In its index's order; empty without one."""
    identity_columns: tuple[str, ...]
    """The columns of the index that is its replica identity; empty without one."""
    publications: tuple[Publication, ...]
    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    has_children: bool
    hides_rows: bool
    readable: bool
    """True with the right to read all columns: locking a table takes more than a right to some."""

    @property
    def place(self) -> str:
        """The name for messages."""
        return f"{self.schema}.{self.name}"

    def column(self, name: str) -> FoundColumn | None:
        """The column of this name, None without it."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """A replication slot. `confirmed` is the LSN up to which its reader has acknowledged, as text.

    `retained_bytes` of the log are kept for it, None if unknown; `endangered`: the server is about to remove them.
    """

    name: str
    kind: str
    plugin: str | None
    database: str | None
    active: bool
    lost: bool
    confirmed: str | None
    retained_bytes: int | None
    endangered: bool


def server_of(session: Session) -> Server:
    """The server of the session. Raises: as `Session`."""
    [facts] = session.rows(_SERVER)
    return Server(*facts)


def table_of(session: Session, name: str) -> FoundTable | None:
    """The table with this name, in SQL's notation; None if there is none. Raises: as `Session`."""
    found = session.rows(_TABLE, [name])
    if not found:
        return None
    [facts] = found
    oid, schema, table, *_ = facts
    indexes = session.rows(_INDEXES, [oid])
    return FoundTable(
        tuple(
            FoundColumn(column, DatabaseType(*found_type), generated, collation)
            for column, *found_type, generated, collation in session.rows(_COLUMNS, [oid, oid])
        ),
        next((tuple(names) for is_primary, _, names in indexes if is_primary), ()),
        next((tuple(names) for _, is_identity, names in indexes if is_identity), ()),
        tuple(_publication(*each) for each in session.rows(_PUBLICATIONS, [schema, table])),
        *facts,
    )


def _publication(name: str, whole: bool, listed: Mapping[str, Any]) -> Publication:
    """Before version 15 a publication had neither lists of columns nor filters."""
    columns = listed.get("attnames")
    filtered = listed.get("rowfilter") is not None
    return Publication(name, whole, None if columns is None else frozenset(columns), filtered)


def slot_of(session: Session, name: str) -> ReplicationSlot | None:
    """The slot with this name, None if there is none. Raises: as `Session`."""
    found = session.rows(_SLOT, [name])
    if not found:
        return None
    [(row, retained_bytes)] = found
    lost = row.get("wal_status") == "lost" or row.get("invalidation_reason") is not None
    return ReplicationSlot(
        name,
        row["slot_type"],
        row.get("plugin"),
        row.get("database"),
        row["active"],
        lost,
        row.get("confirmed_flush_lsn"),
        retained_bytes,
        row.get("wal_status") == "unreserved",
    )
