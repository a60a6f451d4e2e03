"""Columns of a table as they are declared: a name with a type, or with its form in records of the upstream."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any, Literal, NamedTuple, cast

from schemas.faults import nearest
from schemas.kinds.fills import fill_of, has_utf8
from schemas.types import ColumnType, TypeName, Value, json_literal

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
RESERVED_PREFIX = "_bf_"
"""The prefix of our own columns in the replica, which follow the table's columns."""

ColumnTime = Literal[
    "adaptive", "connect", "milliseconds", "microseconds", "nanoseconds", "isostring", "days"
]
ColumnDecimal = Literal["precise", "string"]
Unsigned = Literal["wrapped"]

_COLUMN_KEYS = ("type", "field", "time", "decimal", "unsigned", "fill")
_UNITS: dict[str, dict[TypeName, tuple[str, ...]]] = {
    "time": {
        TypeName.DATE: ("days", "isostring", "adaptive"),
        TypeName.TIMESTAMP: (
            *("milliseconds", "microseconds", "nanoseconds", "connect"),
            *("isostring", "adaptive"),
        ),
    },
    "decimal": {TypeName.DECIMAL: ("precise", "string")},
    "unsigned": {TypeName.DECIMAL: ("wrapped",)},
}
"""Units that a column's values may have in records, by its type."""
_MAX_FIELD = 1_000
_UNSIGNED_DIGITS = 20


class FormerType(NamedTuple):
    """A type that a column had up to the end of a batch."""

    epoch: int
    type: ColumnType


class FormerNames(NamedTuple):
    """The names that a column had in records up to the end of a batch; without any it was no column."""

    epoch: int
    names: tuple[str, ...]


_IN_NO_RECORD = "\x7f"
"""The first character of the name of a column that is not looked for in records: no field begins so."""


@dataclass(frozen=True)
class Column:
    """A column; `nullable` is false exactly for the primary key's.

    `field` is its name in records of the upstream, None: its own name; `aliases` are further names, each for records
    that have none of those before. `time`, `decimal` and `unsigned` say what its values mean there; None: the
    upstream's format says it. Only readers of the upstream may use these and `fill`: state and outputs have the
    column's name and value alone.

    `fill` is the column's value where a record's schema, or a record without one, has none of its names. `has_fill`:
    records may lack the column; without it a column that no record has is an error. It is no part of what a state is
    of, so that `fill: null` may come and go. `was` are narrower types that it had, oldest first. `is_retired`: the
    upstream's table has it no more. `read_as`, oldest first: the names by which it was read while records may have had
    it under its newer ones, which were ignored; `ignored`: the newer ones, for records of that time (`as_read`).
    """

    name: str
    type: ColumnType
    nullable: bool
    field: str | None = None
    time: ColumnTime | None = None
    decimal: ColumnDecimal | None = None
    unsigned: Unsigned | None = None
    aliases: tuple[str, ...] = ()
    fill: Value = None
    has_fill: bool = dataclass_field(default=False, compare=False)
    was: tuple[FormerType, ...] = dataclass_field(default=(), compare=False)
    is_retired: bool = dataclass_field(default=False, compare=False)
    read_as: tuple[FormerNames, ...] = dataclass_field(default=(), compare=False)
    ignored: tuple[str, ...] = dataclass_field(default=(), compare=False)

    @property
    def in_records(self) -> Column:
        """The column under its first name in records of the upstream."""
        return self if self.field is None else replace(self, name=self.field, field=None)

    @property
    def names_in_records(self) -> tuple[str, ...]:
        """Its names in records of the upstream; the first one that a record has counts."""
        return (self.name if self.field is None else self.field, *self.aliases)

    def is_alike(self, declared: Column) -> bool:
        """True if a declaration is of this column but for its names in records, and has a narrower type at most."""
        kind, unnamed = declared.type, replace(self, field=None, aliases=(), type=declared.type)
        is_narrower = kind == self.type or kind.widens_to(self.type)
        return is_narrower and unnamed == replace(declared, field=None, aliases=())

    @property
    def keys_in_records(self) -> dict[str, Any]:
        """The given ones of `field`, `time`, `decimal`, `unsigned` and `fill`, but `fill: null`."""
        field = [*self.names_in_records] if self.aliases else self.field
        given: dict[str, Any] = {"field": field, "time": self.time, "decimal": self.decimal}
        given |= {"unsigned": self.unsigned, "fill": json_literal(self.fill)}
        return {key: value for key, value in given.items() if value is not None}

    def at(self, epoch: int) -> Column:
        """The column with the type that it had at the end of a batch."""
        kind = next((former.type for former in self.was if epoch <= former.epoch), self.type)
        return replace(self, type=kind)

    def with_past_of(self, former: Column) -> Column:
        """The column, with what another version of it has been."""
        return replace(self, was=former.was, is_retired=former.is_retired, read_as=former.read_as)

    def as_read(self, epoch: int) -> Column:
        """The column as it is read from the records of a batch."""
        names = next((former.names for former in self.read_as if epoch <= former.epoch), None)
        if names is None:
            return self
        field, *aliases = names or (_IN_NO_RECORD + self.name,)
        named = replace(self, field=field, aliases=tuple(aliases), has_fill=True)
        return replace(named, ignored=self.names_in_records)

    @property
    def is_incomplete(self) -> bool:
        """True if rows have its fill although their records may have had a value."""
        return any(not former.names for former in self.read_as)

    @property
    def announced(self) -> dict[str, Any]:
        """Type and fill, as the barriers of an output that gets the column have them."""
        more = {"incomplete": True} if self.is_incomplete else {}
        return {"type": str(self.type), "fill": json_literal(self.fill), **more}

    @property
    def declared(self) -> str | dict[str, Any]:
        """The column as a declaration has it: its type, or a mapping."""
        more = self.keys_in_records
        return {"type": str(self.type), **more} if more else str(self.type)


def are_among(names: Sequence[str], others: Sequence[str]) -> bool:
    """True if names are among others, in the same order."""
    rest = iter(others)
    return all(name in rest for name in names)


_NEW_FIELD = "a field {!r} that is no column of the table"
_NEW_FIELD_TEXT = re.compile(r"a field ('.*'|\".*\") that is no column of the table")


def new_field_text(name: str) -> str:
    """The text of an error for a field of a record that is neither a column nor ignored."""
    return _NEW_FIELD.format(name)


_LOST_COLUMN = "a schema without column {}, which an earlier version of it has"
_LOST_COLUMN_TEXT = re.compile(_LOST_COLUMN.format(r"(\w+)"))


def lost_column_text(name: str) -> str:
    """The text of an error for a schema that has lost a column."""
    return _LOST_COLUMN.format(name)


def lost_column_in(found: str) -> str | None:
    """The column that such a text names; None of any other text."""
    named = _LOST_COLUMN_TEXT.search(found)
    return None if named is None else named[1]


def new_field_in(found: str) -> str | None:
    """The field that such a text names; None of any other text."""
    named = _NEW_FIELD_TEXT.search(found)
    return None if named is None else str(ast.literal_eval(named[1]))


def in_records(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns under their names in records of the upstream."""
    return tuple(column.in_records for column in columns)


def declared_columns(declared: object, faults: list[str]) -> list[Column]:
    """The columns of a declaration that can be read, each nullable; what is wrong is added to `faults`."""
    if not isinstance(declared, Mapping) or not declared:
        faults.append("columns is not a mapping of names to types")
        return []
    columns = []
    for name, given in declared.items():
        if not (isinstance(name, str) and IDENTIFIER.fullmatch(name)):
            faults.append(
                f"column name {name!r} is not letters, digits and _ (128 at most); "
                "its name in records can be any text: field"
            )
        elif name.lower().startswith(RESERVED_PREFIX):
            faults.append(
                f"column name {name!r} starts with {RESERVED_PREFIX}, which is kept for the replica"
            )
        else:
            try:
                columns.append(_column(name, given))
            except ValueError as error:
                faults.append(f"column {name}: {error}")
    if len({column.name.lower() for column in columns}) != len(columns):
        faults.append("two column names differ only in case")  # Spark and Delta treat them as one
    fields = [name for column in columns for name in column.names_in_records]
    faults += [
        f"two columns are read from {name!r}" for name in sorted(set(fields)) if fields.count(name) > 1
    ]
    return columns


def _column(name: str, given: object) -> Column:
    """The column. Raises: ValueError with the fault."""
    if not isinstance(given, Mapping):
        return Column(name, ColumnType.parse(str(given)), nullable=True)
    unknown = [str(key) for key in given if key not in _COLUMN_KEYS]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}{nearest(unknown[0], _COLUMN_KEYS)}")
    kind = ColumnType.parse(str(given.get("type", "")))
    field, *aliases = _names_in_records(name, given.get("field"))
    try:
        fill = fill_of(given.get("fill"), kind)
    except ValueError as expected:
        raise ValueError(f"fill {given['fill']!r} is not {expected}") from None
    for key, kinds in _UNITS.items():
        if (value := given.get(key)) is None:
            continue
        if kind.name not in kinds:
            raise ValueError(f"{key} is for columns of type {' and '.join(kinds)}, not {kind}")
        if value not in kinds[kind.name]:
            raise ValueError(f"{key} {value!r} is not one of: {', '.join(kinds[kind.name])}")
    if given.get("unsigned") is not None:
        if kind.scale != 0 or (kind.precision or 0) < _UNSIGNED_DIGITS:
            raise ValueError(f"unsigned is for decimal({_UNSIGNED_DIGITS},0), not {kind}")
        if given.get("decimal") is not None:
            raise ValueError("unsigned is for whole numbers, decimal for bytes and texts: one of them")
    # `field: <its own name>` is the same declaration as none.
    units = {key: cast("Any", given.get(key)) for key in _UNITS}
    named = None if field == name else field
    more = {"aliases": tuple(aliases), "fill": fill, "has_fill": "fill" in given}
    return Column(name, kind, nullable=True, field=named, **units, **more)


def _names_in_records(name: str, field: object) -> list[str]:
    """The names of a `field`, which has one or a list of them. Raises: ValueError."""
    if field is None:
        return [name]
    names = list[str]()
    for each in field if isinstance(field, list) and field else [field]:
        if not (isinstance(each, str) and 0 < len(each) <= _MAX_FIELD and has_utf8(each)):
            raise ValueError(f"field {each!r} is no text of 1 to {_MAX_FIELD} characters")
        names.append(each)
    return names
