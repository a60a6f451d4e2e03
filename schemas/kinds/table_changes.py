"""Changes of a table while its state lives, as `backfill alter` and the control topic have them.

    {"add": {"c": {"type": "int", "fill": 0}}}    a column behind the others
    {"widen": {"c": "bigint"}}                    a column's type, of which each value is one of the wider type
    {"retire": "c"}                               a column that the upstream's table has no more, and that stays
    {"rename": {"old": "new"}}                    records have a column under a new name, the column keeps its own
    {"ignore": "c"}                               a field of records that is no column

With `"accept_missing": true` beside `add` or `rename`, records up to the change may have had the column under names
that were ignored: these are not read from them, and rows have the fill, or what other names give, until a record comes.

Each may be made twice: what is there already stays. Outputs that have a column which gets a wider type go on with equal
values and keys, or the change is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.errors import Code, ConfigError
from schemas.faults import brief
from schemas.formats.change import ChangeFormat
from schemas.job import JobDefinition
from schemas.kinds.columns import Column, are_among
from schemas.table import TableSchema, declare, nearest
from schemas.types import ColumnType, TypeName

MOST_CHANGES = 100
_ACCEPT_MISSING = "accept_missing"


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column, declared as in a configuration, in JSON. `accepts_missing`: earlier records may have had it."""

    name: str
    declared: str
    accepts_missing: bool = False

    @classmethod
    def of(cls, column: Column) -> AddColumn:
        """The change that adds a column."""
        return cls(column.name, json.dumps(column.declared))


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """A wider type for a column: `bigint` for `int`, `double` for `float`, more digits for a decimal."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class RetireColumn:
    """A column that the upstream's table has no more: rows keep what they have, records give it its fill."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameField:
    """A new name in records for the column `old`, before those that it has there.

    `accepts_missing`: earlier records may have had it.
    """

    old: str
    new: str
    accepts_missing: bool = False


@dataclass(frozen=True, slots=True)
class IgnoreField:
    """A field of records that is no column."""

    name: str


TableChange = AddColumn | WidenColumn | RetireColumn | RenameField | IgnoreField


_OF_NAMES: Mapping[object, type[RetireColumn] | type[IgnoreField]] = {
    "retire": RetireColumn,
    "ignore": IgnoreField,
}


def changes_to_json(changes: Iterable[TableChange]) -> list[dict[str, object]]:
    """JSON values, which `changes_from_json` reads back."""
    return list(map(_change_to_json, changes))


def _change_to_json(change: TableChange) -> dict[str, object]:
    match change:
        case AddColumn(name, declared, accepts_missing):
            return {"add": {name: json.loads(declared)}, **_missing(accepts_missing)}
        case WidenColumn(name, kind):
            return {"widen": {name: kind}}
        case RetireColumn(name):
            return {"retire": name}
        case RenameField(old, new, accepts_missing):
            return {"rename": {old: new}, **_missing(accepts_missing)}
        case IgnoreField(name):
            return {"ignore": name}


def _missing(is_accepted: bool) -> dict[str, object]:
    return {_ACCEPT_MISSING: True} if is_accepted else {}


def changes_from_json(raw: object) -> tuple[TableChange, ...]:
    """Read what `changes_to_json` gave; whether a column can be declared so is another question. Raises: ValueError."""
    if not isinstance(raw, list) or not 0 < len(raw) <= MOST_CHANGES:
        raise ValueError(f"changes are a list of 1 to {MOST_CHANGES}")
    return tuple(map(_change_from_json, raw))


def _change_from_json(raw: object) -> TableChange:
    named = dict(raw) if isinstance(raw, dict) else {}
    accepts_missing = named.pop(_ACCEPT_MISSING, False)
    if len(named) == 1 and isinstance(accepts_missing, bool):
        [(kind, content)] = named.items()
        if kind in _OF_NAMES and isinstance(content, str) and not accepts_missing:
            return _OF_NAMES[kind](content)
        if isinstance(content, dict) and len(content) == 1:
            [(name, value)] = content.items()
            if kind == "add" and isinstance(value, str | dict):
                return AddColumn(str(name), json.dumps(value), accepts_missing)
            if kind == "widen" and isinstance(value, str) and not accepts_missing:
                return WidenColumn(str(name), value)
            if kind == "rename" and isinstance(value, str):
                return RenameField(str(name), value, accepts_missing)
    raise ValueError(
        "a change is one of add, widen, retire, rename, ignore; the first and the fourth with accept_missing"
    )


def changes_text(changes: Iterable[TableChange]) -> str:
    """The JSON text that an `Alter` has; equal changes have equal texts."""
    return json.dumps(changes_to_json(changes), separators=(",", ":"))


def in_words(changes: Iterable[TableChange]) -> str:
    """Changes for people: `add c (accept missing), widen d to bigint, retire e, rename old to new, ignore f`."""
    found = list[str]()
    for change in changes_to_json(changes):
        missing = " (accept missing)" if change.pop(_ACCEPT_MISSING, False) else ""
        [(kind, content)] = change.items()
        if isinstance(content, str):
            found.append(f"{kind} {brief(content)}")
        elif isinstance(content, dict):
            [(name, to)] = content.items()
            found.append(f"{kind} {brief(name)}" + ("" if kind == "add" else f" to {brief(to)}") + missing)
    return ", ".join(found)


def altered(table: TableSchema, changes: Sequence[TableChange]) -> TableSchema:
    """The table with these columns and names more, and wider types. Raises: ConfigError(TABLE_INVALID)."""
    for change in changes:
        match change:
            case AddColumn(name, declared, _):
                table = _with_column(table, name, json.loads(declared))
            case WidenColumn(name, kind):
                table = _with_type(table, name, kind)
            case RetireColumn(name):
                table = _without_records(table, name)
            case RenameField(old, new, _):
                table = _with_name(table, old, new)
            case IgnoreField(name):
                if column := _read_from(table, name):
                    raise _invalid(table, f"{name!r} ignored, from which column {column.name} is read")
    return table


def _with_column(table: TableSchema, name: str, declared: object) -> TableSchema:
    made = _declared(table, {**_columns(table), name: declared})
    known, wanted = table.by_name.get(name), made.by_name[name]
    if known is None:
        return made
    if known.is_alike(wanted) and are_among(wanted.names_in_records, known.names_in_records):
        return _with(table, replace(known, is_retired=False))
    raise _invalid(table, f"column {name} as {wanted.declared}, which is there as {known.declared}")


def _with_type(table: TableSchema, name: str, kind: str) -> TableSchema:
    column = _column_of(table, name, "a wider type")
    try:
        wider = ColumnType.parse(kind)
    except ValueError as fault:
        raise _invalid(table, f"column {column.name}: {fault}") from None
    if column.name in table.primary_key:
        raise _invalid(table, f"column {column.name} of the key widened: its rows would be in other vnodes")
    if wider == column.type or wider.widens_to(column.type):
        return table
    if not column.type.widens_to(wider):
        raise _invalid(table, f"column {column.name} as {wider}, which lacks values of its {column.type}")
    return _declared(table, {**_columns(table), column.name: replace(column, type=wider).declared})


def _without_records(table: TableSchema, name: str) -> TableSchema:
    column = _column_of(table, name, "the end")
    if column.name in table.primary_key:
        raise _invalid(table, f"column {column.name} of the key retired: it says which row a record is of")
    return _with(table, replace(column, is_retired=True))


def _with(table: TableSchema, column: Column) -> TableSchema:
    """The table with another column of a name."""
    columns = (column if each.name == column.name else each for each in table.columns)
    return replace(table, columns=tuple(columns))


def _with_name(table: TableSchema, old: str, new: str) -> TableSchema:
    column = _column_of(table, old, "a new name")
    names = column.names_in_records
    if new == names[0]:
        return table
    field, *aliases = new, *(name for name in names if name != new)
    wanted = replace(column, field=field, aliases=tuple(aliases))
    return _declared(table, {**_columns(table), column.name: wanted.declared})


def _column_of(table: TableSchema, name: str, what: str) -> Column:
    """The column of this name, or else the one that records have under it. Raises: ConfigError(TABLE_INVALID)."""
    column = table.by_name.get(name) or _read_from(table, name)
    if column is None:
        raise _invalid(table, f"{what} of {name!r}, no such column{nearest(name, table.column_names)}")
    return column


def _read_from(table: TableSchema, name: str) -> Column | None:
    return next((column for column in table.columns if name in column.names_in_records), None)


def _columns(table: TableSchema) -> dict[str, object]:
    return {column.name: column.declared for column in table.columns}


def _declared(table: TableSchema, columns: Mapping[str, object]) -> TableSchema:
    """The table with other columns, which are checked. Those that it has stay as they are."""
    made = declare({**table.to_dict(), "columns": columns}, where=table.name, has_key=table.has_key)
    return replace(table, columns=tuple(_kept(table.by_name.get(each.name), each) for each in made.columns))


def _kept(known: Column | None, declared: Column) -> Column:
    # Neither fills of null nor what a column has been are parts of a declaration.
    if known is None:
        return declared
    return known if known == declared else declared.with_past_of(known)


def _invalid(table: TableSchema, found: str) -> ConfigError:
    return ConfigError(
        Code.TABLE_INVALID,
        where=table.name,
        found=found,
        expected="a change that the table can have",
        next_step="correct the change; nothing was written",
    )


def widened(before: TableSchema, after: TableSchema) -> tuple[Column, ...]:
    """The columns, as they are afterwards, whose type is another one."""
    return tuple(
        column
        for column in after.columns
        if column.name in before.by_name and column.type != before.by_name[column.name].type
    )


def missing_accepted(changes: Iterable[TableChange]) -> tuple[str, ...]:
    """The columns, by their names or by names in records, of changes that accept what earlier records had."""
    found = (
        change.name if isinstance(change, AddColumn) else change.new
        for change in changes
        if isinstance(change, AddColumn | RenameField) and change.accepts_missing
    )
    return tuple(found)


def missing_refusal(changes: Iterable[TableChange], jobs: Iterable[JobDefinition]) -> str | None:
    """The reason why values may not be missing for these jobs; None if they may."""
    names = missing_accepted(changes)
    readers = (job.name for job in jobs if job.scan.reads_upstream)
    reader = next(readers, None)
    if not names or reader is None:
        return None
    return f"{names[0]} with values missing, which job {reader} would read again from the topic"


def widening_refusal(before: TableSchema, after: TableSchema, jobs: Iterable[JobDefinition]) -> str | None:
    """The reason why the outputs of these jobs can't have the wider types of a table; None if they can."""
    wider = widened(before, after)
    reasons = (reason for job in jobs for column in wider for reason in _refusals(before, column, job))
    return next(reasons, None)


def _refusals(before: TableSchema, column: Column, job: JobDefinition) -> Iterator[str]:
    shown = [each for each in job.columns if each.source == column.name]
    what = f"{column.name} widened, which job {job.name}"
    narrow, kind = before.by_name[column.name].type, column.type
    if column.name in job.key:
        yield f"{what} has in the keys of its output"
    if not shown:
        return
    if isinstance(job.format, ChangeFormat):
        yield f"{what} writes in format change, whose schema is for good"
    if kind.name is TypeName.DOUBLE:
        yield f"{what} has sent: as a double, the text of a float is another number"
    if kind.scale != narrow.scale and job.format.framed:
        yield f"{what} writes in Avro, where it keeps its scale"
    if kind.scale != narrow.scale and any(each.mask == "hash" for each in shown):
        yield f"{what} writes as a hash, which would be another one"
