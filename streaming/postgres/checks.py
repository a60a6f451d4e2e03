"""Checks of a table, its slot and its server: anything that could make rows and events disagree is refused.

Pure functions of facts from `catalog`. A table is refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from schemas.errors import Code, ConfigError, EnvironmentProblem
from schemas.json.debezium_values import TimeMode
from schemas.table import TableSchema, nearest
from streaming.postgres.catalog import FoundColumn, FoundTable, Publication, ReplicationSlot, Server
from streaming.postgres.columns import ColumnReading, EventForms, Readings, reading_of

Mode = Literal["chunks", "whole"]
OLDEST_VERSION = 130_000
"""The first with `pg_current_snapshot`."""
PLUGINS = ("pgoutput", "decoderbufs")
"""Plugins of slots that Debezium reads."""

_MILLI_DIGITS = 3
_BYTEWISE = frozenset({"C", "POSIX"})
_BYTEWISE_BUILTIN = frozenset({"C", "C.UTF-8", "C.UTF8", "PG_UNICODE_FAST"})
"""Locales of the database's own provider, which compare bytes."""
_TEXTS = frozenset({"text", "varchar"})
_KEY_TYPES = frozenset(
    {"bool", "int2", "int4", "int8", "numeric", "date", "timestamp", "timestamptz", "uuid", *_TEXTS}
)
"""Types whose order in the database is that of their values here, texts by their collation."""
_KINDS = {
    "v": "a view",
    "m": "a materialised view",
    "f": "a foreign table",
    "i": "an index",
    "I": "an index",
    "S": "a sequence",
    "c": "a type",
    "t": "a TOAST table",
}
_PARTITIONED = "p"


@dataclass(frozen=True, slots=True)
class Declared:
    """The configuration of a copy: the table, the way of reading, and the form of its events."""

    table: TableSchema
    name: str
    """The table's name, in SQL's notation."""
    slot: str
    mode: Mode
    forms: EventForms
    publication: str | None = None
    """The connector's, None where it is not known."""


def check_server(server: Server) -> None:
    """Raises: ConfigError(POSTGRES_UNFIT).

    A standby's snapshots do not name the running transactions, so it would be unknown which changes a chunk holds.
    """
    if server.version < OLDEST_VERSION:
        found = f"PostgreSQL {server.version // 10_000}"
    elif server.is_standby:
        found = "a server in recovery, which follows another one"
    else:
        return
    raise ConfigError(Code.POSTGRES_UNFIT, where=f"database {server.database}", found=found)


def check_slot(slot: ReplicationSlot | None, server: Server, *, must_stream: bool) -> ReplicationSlot:
    """The slot, checked. `must_stream`: its reader has to be connected now.

    Raises: ConfigError(POSTGRES_SLOT_MISSING, POSTGRES_SLOT_MISFIT), EnvironmentProblem(POSTGRES_NOT_STREAMING).
    """
    if slot is None:
        raise ConfigError(
            Code.POSTGRES_SLOT_MISSING, where="initial.postgres.slot", found="no slot with this name"
        )
    reason = None
    if slot.kind != "logical":
        reason = f"a {slot.kind} slot"
    elif slot.database != server.database:
        reason = "a slot of another database"
    elif slot.plugin not in PLUGINS:
        reason = f"a slot of the plugin {slot.plugin}"
    elif slot.lost:
        reason = "a slot whose log the server has removed"
    if reason is not None:
        raise ConfigError(
            Code.POSTGRES_SLOT_MISFIT,
            where="initial.postgres.slot",
            found=reason,
            database=server.database,
            plugins=" or ".join(PLUGINS),
        )
    if must_stream and not slot.active:
        found = f"nothing that reads the slot {slot.name}"
        raise EnvironmentProblem(Code.POSTGRES_NOT_STREAMING, where="initial.postgres.slot", found=found)
    return slot


def check_table(
    declared: Declared, found: FoundTable | None, server: Server, slot: ReplicationSlot
) -> Readings:
    """The readings of its columns.

    Raises: ConfigError: POSTGRES_TABLE_MISSING, POSTGRES_TABLE_MISFIT, POSTGRES_RIGHTS, POSTGRES_ROWS_HIDDEN,
    POSTGRES_EVENTS_MISFIT, POSTGRES_KEY_MISFIT, POSTGRES_KEY_ORDER.
    """
    table = check_is_table(found)
    readings = check_columns(declared, table)
    check_rights(table)
    check_key(declared, table, server)
    check_events(declared, table, slot)
    return readings


def check_is_table(found: FoundTable | None) -> FoundTable:
    """Raises: ConfigError(POSTGRES_TABLE_MISSING)."""
    if found is None:
        raise ConfigError(
            Code.POSTGRES_TABLE_MISSING, where="initial.postgres.table", found="no table with this name"
        )
    if found.kind in _KINDS:
        raise ConfigError(Code.POSTGRES_TABLE_MISSING, where=_place(found), found=_KINDS[found.kind])
    return found


def check_rights(found: FoundTable) -> None:
    """Raises: ConfigError(POSTGRES_RIGHTS, POSTGRES_ROWS_HIDDEN)."""
    if not found.readable:
        raise ConfigError(Code.POSTGRES_RIGHTS, where=_place(found), found="a role that may not read it")
    if found.hides_rows:
        hidden = "row-level security, to which this role is subject"
        raise ConfigError(Code.POSTGRES_ROWS_HIDDEN, where=_place(found), found=hidden)


def check_events(declared: Declared, found: FoundTable, slot: ReplicationSlot) -> None:
    """Raises: ConfigError(POSTGRES_EVENTS_MISFIT)."""
    reason = next(_incompatible_events(declared, found, slot), None)
    if reason is not None:
        raise ConfigError(Code.POSTGRES_EVENTS_MISFIT, where=_place(found), found=reason)


def _place(found: FoundTable) -> str:
    return f"table {found.place}"


def check_columns(declared: Declared, found: FoundTable) -> dict[str, ColumnReading]:
    """The readings of the declared columns. Raises: ConfigError(POSTGRES_TABLE_MISFIT)."""
    readings: dict[str, ColumnReading] = {}
    faults: list[str] = []
    for column in declared.table.columns:
        there = found.column(column.name)
        if there is None:
            names = [each.name for each in found.columns]
            faults.append(f"no column {column.name}{nearest(column.name, names)}")
            continue
        reading = reading_of(there.type, column.type, declared.forms)
        if there.generated:
            faults.append(f"column {column.name} is generated, and not in events")
        elif reading is None:
            faults.append(
                f"column {column.name} is {there.type.name}, not {column.type}{_hint(declared, there)}"
            )
        else:
            readings[column.name] = reading
    if faults:
        raise ConfigError(Code.POSTGRES_TABLE_MISFIT, where=_place(found), found="; ".join(faults))
    return readings


def _hint(declared: Declared, found: FoundColumn) -> str:
    if found.type.name in ("time", "timestamp") and declared.forms.time is None:
        return " whose unit is known (upstream.time)"
    if found.type.name == "numeric" and found.type.precision is not None:
        return f": its events are read at the scale of the database, {found.type.precision[1]}"
    return ""


def check_key(declared: Declared, found: FoundTable, server: Server) -> None:
    """Check the primary key, whose columns must exist. Raises: ConfigError(POSTGRES_KEY_MISFIT, POSTGRES_KEY_ORDER)."""
    key, place = declared.table.primary_key, _place(found)
    fits = found.primary_key == key or (declared.mode == "whole" and set(found.primary_key) == set(key))
    if not fits:
        other = f"the primary key ({', '.join(found.primary_key)})" if found.primary_key else "no primary key"
        raise ConfigError(Code.POSTGRES_KEY_MISFIT, where=place, found=other, key=", ".join(key))
    if declared.mode == "whole":
        return
    there = {column.name: column for column in found.columns}
    for name in key:
        reason = _order_incompatibility(there[name], declared.forms.time, server)
        if reason is not None:
            raise ConfigError(Code.POSTGRES_KEY_ORDER, where=f"{place}, column {name}", found=reason)


def _order_incompatibility(found: FoundColumn, time: TimeMode | None, server: Server) -> str | None:
    """The reason why the database orders a key column otherwise than Arrow orders its values, None if it does not."""
    if found.type.kind == "e":
        return "an enum, which is ordered by its declaration"
    if found.type.name not in _KEY_TYPES:
        return f"the type {found.type.name}"
    if found.type.name in _TEXTS:
        if server.encoding != "UTF8":
            return f"text in the encoding {server.encoding}"
        locale = _collation(found.collation or {}, server.collation)
        return None if locale is None else f"text with the collation {locale}"
    digits = found.type.digits
    is_finer = found.type.name == "timestamp" and (digits is None or digits > _MILLI_DIGITS)
    if is_finer and time == "connect":
        return "a timestamp of which events have only the milliseconds"
    return None


def _collation(of_column: Mapping[str, Any], of_database: Mapping[str, Any]) -> str | None:
    """The locale of a collation that does not compare bytes, None for one that does."""
    provider = of_column.get("collprovider", "d")
    if provider == "d":
        provider = of_database.get("datlocprovider", "c")
        locales = {"c": "datcollate", "i": "daticulocale", "b": "datlocale"}
        locale = of_database.get("datlocale") if provider != "c" else None
        locale = locale or of_database.get(locales.get(provider, "datcollate"))
    else:
        name = "collcollate" if provider == "c" else "colllocale"
        locale = of_column.get(name) or of_column.get("colliculocale") or of_column.get("collcollate")
    bytewise = {"c": _BYTEWISE, "b": _BYTEWISE_BUILTIN}.get(provider, frozenset())
    return None if locale in bytewise else str(locale)


def _incompatible_events(declared: Declared, found: FoundTable, slot: ReplicationSlot) -> Iterator[str]:
    if found.persistence != "p":
        yield "an unlogged or temporary table, which has no events"
    if found.kind != _PARTITIONED and found.has_children:
        yield "tables that inherit from it, whose rows have events of their own"
    if found.identity == "n":
        yield "REPLICA IDENTITY NOTHING, which leaves the key out of events"
    if found.identity == "i" and not set(found.primary_key) <= set(found.identity_columns):
        yield "a REPLICA IDENTITY without the primary key"
    if slot.plugin == "pgoutput":
        reason = _unpublished(declared, found)
        if reason is not None:
            yield reason
    elif found.kind == _PARTITIONED:
        yield f"a partitioned table, whose events the plugin {slot.plugin} gives to its partitions"


def _unpublished(declared: Declared, found: FoundTable) -> str | None:
    """The reason why the connector's publication (any, if that is unknown) lacks events; None if it has all of them."""
    named = [each for each in found.publications if declared.publication in (None, each.name)]
    if not named:
        which = (
            "no publication that has it"
            if declared.publication is None
            else "a publication of the connector that lacks it"
        )
        return which + (
            " under its own name (publish_via_partition_root)" if found.kind == _PARTITIONED else ""
        )
    faults = [_incomplete(each, declared.table) for each in named]
    return faults[0] if all(faults) else None


def _incomplete(publication: Publication, table: TableSchema) -> str | None:
    if not publication.whole:
        return f"the publication {publication.name}, which leaves out inserts, updates or deletes"
    if publication.filtered:
        return f"the publication {publication.name}, which leaves out rows"
    if publication.columns is not None and not set(table.column_names) <= publication.columns:
        return f"the publication {publication.name}, which leaves out columns"
    return None
