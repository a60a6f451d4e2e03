"""Changes of a table while its state lives, as `backfill alter` and the control topic have them.

    {"add": {"c": {"type": "int", "fill": 0}}}    a column behind the others
    {"rename": {"old": "new"}}                    records have a column under a new name, the column keeps its own
    {"ignore": "c"}                               a field of records that is no column

Each may be made twice: what is there already stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.errors import Code, ConfigError
from schemas.faults import brief
from schemas.kinds.columns import Column
from schemas.table import TableSchema, declare, nearest

MOST_CHANGES = 100


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column, declared as in a configuration, in JSON."""

    name: str
    declared: str

    @classmethod
    def of(cls, column: Column) -> AddColumn:
        """The change that adds a column."""
        return cls(column.name, json.dumps(column.declared))


@dataclass(frozen=True, slots=True)
class RenameField:
    """A new name in records for the column `old`, before those that it has there."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class IgnoreField:
    """A field of records that is no column."""

    name: str


TableChange = AddColumn | RenameField | IgnoreField


def changes_to_json(changes: Iterable[TableChange]) -> list[dict[str, object]]:
    """JSON values, which `changes_from_json` reads back."""
    found = list[dict[str, object]]()
    for change in changes:
        match change:
            case AddColumn(name, declared):
                found.append({"add": {name: json.loads(declared)}})
            case RenameField(old, new):
                found.append({"rename": {old: new}})
            case IgnoreField(name):
                found.append({"ignore": name})
    return found


def changes_from_json(raw: object) -> tuple[TableChange, ...]:
    """Read what `changes_to_json` gave; whether a column can be declared so is another question. Raises: ValueError."""
    if not isinstance(raw, list) or not 0 < len(raw) <= MOST_CHANGES:
        raise ValueError(f"changes are a list of 1 to {MOST_CHANGES}")
    return tuple(map(_change_from_json, raw))


def _change_from_json(raw: object) -> TableChange:
    if isinstance(raw, dict) and len(raw) == 1:
        [(kind, content)] = raw.items()
        if kind == "ignore" and isinstance(content, str):
            return IgnoreField(content)
        if isinstance(content, dict) and len(content) == 1:
            [(name, value)] = content.items()
            if kind == "add" and isinstance(value, str | dict):
                return AddColumn(str(name), json.dumps(value))
            if kind == "rename" and isinstance(value, str):
                return RenameField(str(name), value)
    raise ValueError("a change is one of add, rename, ignore")


def changes_text(changes: Iterable[TableChange]) -> str:
    """The JSON text that an `Alter` has; equal changes have equal texts."""
    return json.dumps(changes_to_json(changes), separators=(",", ":"))


def in_words(changes: Iterable[TableChange]) -> str:
    """Changes for people: `add c, rename old to new, ignore d`."""
    found = list[str]()
    for change in changes:
        match change:
            case RenameField(old, new):
                found.append(f"rename {brief(old)} to {brief(new)}")
            case AddColumn(name) | IgnoreField(name):
                found.append(f"{'add' if isinstance(change, AddColumn) else 'ignore'} {brief(name)}")
    return ", ".join(found)


def altered(table: TableSchema, changes: Sequence[TableChange]) -> TableSchema:
    """The table with these columns and names more. Raises: ConfigError(TABLE_INVALID)."""
    for change in changes:
        match change:
            case AddColumn(name, declared):
                table = _with_column(table, name, json.loads(declared))
            case RenameField(old, new):
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
    if known == wanted:
        return table
    raise _invalid(table, f"column {name} as {wanted.declared}, which is there as {known.declared}")


def _with_name(table: TableSchema, old: str, new: str) -> TableSchema:
    column = table.by_name.get(old) or _read_from(table, old)
    if column is None:
        raise _invalid(table, f"a new name of {old!r}, no such column{nearest(old, table.column_names)}")
    names = column.names_in_records
    if new in names:
        return table
    field, *aliases = new, *names
    wanted = replace(column, field=field, aliases=tuple(aliases))
    return _declared(table, {**_columns(table), column.name: wanted.declared})


def _read_from(table: TableSchema, name: str) -> Column | None:
    return next((column for column in table.columns if name in column.names_in_records), None)


def _columns(table: TableSchema) -> dict[str, object]:
    return {column.name: column.declared for column in table.columns}


def _declared(table: TableSchema, columns: Mapping[str, object]) -> TableSchema:
    """The table with other columns, which are checked. Those that it has stay as they are."""
    made = declare({**table.to_dict(), "columns": columns}, where=table.name, has_key=table.has_key)
    # Fills of null are no part of a declaration.
    kept = {column.name: column for column in table.columns}
    same = (kept[each.name] if kept.get(each.name) == each else each for each in made.columns)
    return replace(table, columns=tuple(same))


def _invalid(table: TableSchema, found: str) -> ConfigError:
    return ConfigError(
        Code.TABLE_INVALID,
        where=table.name,
        found=found,
        expected="a change that the table can have",
        next_step="correct the change; nothing was written",
    )
