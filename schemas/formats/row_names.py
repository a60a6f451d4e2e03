"""Names of the fields that a record's row has, by the record itself and by its schema; and declared columns among them.

What is no row of the format has no names: whether it may be there is for the format's decoder to say. A missing field
is null, so a slip in a column's name would be a column of nulls, without an error: a declared column that none of the
first rows has is an error. Over the rows of a running upstream columns may be lost later, and fields may come that are
not declared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

from schemas.avro.fallback import RegisteredRecords
from schemas.avro.projection import branches_of, of_record, record_fields
from schemas.avro.registered import Schemas, framed_id
from schemas.avro.writer_schemas import Schema, WriterSchemaError, parsed
from schemas.errors import Code, ConfigError, InputError
from schemas.faults import nearest
from schemas.formats.protocol import Format
from schemas.formats.with_registry import RegistryFormat
from schemas.table import Column, TableSchema

_FRAME = {"schema", "payload"}


class RowNames(Protocol):
    """Reads the names of fields in the row of a record."""

    def __call__(self, value: bytes) -> frozenset[str] | None:
        """A name whose value is null is there. None where the record has no row, or no row after the change.

        Raises: as `Schemas.get`.
        """


def row_names(format_: Format) -> RowNames | None:
    """The reader of the names; None for a format whose records have all of the declared columns."""
    if not isinstance(format_, RegistryFormat):
        return None
    half = format_.row_field
    return RegisteredNames(format_.schemas_by_id, half) if format_.framed.value else JsonNames(half)


@dataclass
class JsonNames:
    """Names of objects, or of their field `half`, also within Kafka Connect's frame, whose schema has names as well."""

    half: str | None

    def __call__(self, value: bytes) -> frozenset[str] | None:
        """None also for what is no JSON."""
        try:
            record = json.loads(value)
        except (ValueError, RecursionError):
            return None
        described = frozenset[str]()
        if isinstance(record, dict) and record.keys() == _FRAME:
            record, described = record["payload"], _described(record["schema"], self.half)
        if self.half is not None and isinstance(record, dict):
            record = record.get(self.half)
        return described | frozenset(record) if isinstance(record, dict) else None


def _described(schema: Any, half: str | None) -> frozenset[str]:
    try:
        fields = schema["fields"]
        if half is not None:
            fields = next(each["fields"] for each in fields if each["field"] == half)
        return frozenset(str(each["field"]) for each in fields)
    except (TypeError, KeyError, StopIteration):
        return frozenset()


@dataclass
class RegisteredNames:
    """Names of records by a schema registry: those of the writer's schema."""

    schemas: Schemas
    half: str | None
    _known: dict[int, frozenset[str] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        row = partial(of_record, columns=())
        record = partial(of_record, columns=(), parts={self.half: row}) if self.half else row
        self._records = RegisteredRecords(self.schemas, record, "a value")

    def __call__(self, value: bytes) -> frozenset[str] | None:
        """None also for a schema that is not known or can't be read. Raises: as `Schemas.get`."""
        schema_id = framed_id(value)
        if schema_id is None:
            return None
        if schema_id not in self._known:
            self._known[schema_id] = self._names(schema_id)
        names = self._known[schema_id]
        return names if names is not None and self._has_row(value) else None

    def _names(self, schema_id: int) -> frozenset[str] | None:
        schema = self.schemas.get(schema_id)
        try:
            return None if schema is None else frozenset(_row_fields(parsed(schema), self.half))
        except WriterSchemaError:
            return None

    def _has_row(self, value: bytes) -> bool:
        try:
            found = self._records.read(value, general=Code.CHANGE_MALFORMED)
        except InputError:
            return False
        return self.half is None or found.get(self.half) is not None


def _row_fields(schema: Schema, half: str | None) -> Mapping[str, Schema]:
    fields = record_fields(schema)
    if half is None:
        return fields
    rows = branches_of(fields.get(half, "null"))
    return record_fields(rows[0]) if len(rows) == 1 else {}


LEAST_ROWS = 2
"""Rows that are judged: a single one may be of a kind of its own."""
MOST_NAMED = 30
"""Names that an error lists."""


@dataclass
class SeenNames:
    """The names of fields in rows of a table, in the order in which they came; `rows` counts the rows.

    A row of nothing but its key is passed over: it says nothing of the columns.
    """

    table: TableSchema
    rows: int = 0
    names: dict[str, None] = field(default_factory=dict)

    @cached_property
    def _of_key(self) -> frozenset[str]:
        return frozenset(column.in_records.name for column in self.table.key_columns)

    def _has(self, column: Column) -> bool:
        return not self.names.keys().isdisjoint(column.names_in_records)

    def add(self, names: frozenset[str]) -> None:
        """Add the names of one row."""
        if names <= self._of_key:
            return
        self.rows += 1
        self.names |= dict.fromkeys(sorted(names - self.names.keys()))

    @property
    def absent(self) -> tuple[Column, ...]:
        """The columns that no row has, but for retired ones, and those of the key, which the record's key has."""
        return tuple(
            column
            for column in self.table.columns
            if not (self._has(column) or column.is_retired or column.in_records.name in self._of_key)
        )

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The names that are no column's."""
        own = {name for column in self.table.columns for name in column.names_in_records}
        return tuple(name for name in self.names if name not in own)


def refuse_absent(seen: SeenNames, topic: str) -> None:
    """Check that each declared column is in some row; with fewer than two rows there is nothing to judge.

    Raises: ConfigError(COLUMN_ABSENT), unless `fill` says that rows may lack the column.
    """
    absent = [column for column in seen.absent if not column.has_fill]
    if seen.rows < LEAST_ROWS or not absent:
        return
    others = seen.undeclared
    columns = "; ".join(_named(each, nearest(each.in_records.name, others)) for each in absent)
    raise ConfigError(
        Code.COLUMN_ABSENT,
        where=topic,
        found=f"{seen.rows:,} rows without {columns}; their other fields: {_listed(others)}",
    )


def _named(column: Column, guess: str) -> str:
    name = column.in_records.name
    return (
        f"column {column.name}{guess}" if name == column.name else f"{name!r} of column {column.name}{guess}"
    )


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more


LOST_AFTER = 10_000
"""Rows without a column."""
MOST_UNDECLARED = 1_000
"""Names of fields that are kept; of further ones nothing but that they are there."""


class FieldsSeen(NamedTuple):
    """State at some row. `lost` columns were in an earlier one, `never` in none; `more`: more names are not listed."""

    rows: int = 0
    lost: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    more: bool = False


@dataclass
class FieldHistory:
    """Takes the names of one row after another. The columns of the key are not looked for."""

    table: TableSchema
    rows: int = 0
    _last: dict[str, int] = field(default_factory=dict)
    _undeclared: dict[str, None] = field(default_factory=dict)
    _more: bool = False

    def __post_init__(self) -> None:
        key = frozenset(self.table.primary_key)
        self._columns = [each for each in self.table.columns if each.name not in key]
        self._by_name = {name: each.name for each in self.table.columns for name in each.names_in_records}

    def add(self, names: Iterable[str]) -> None:
        """Add the names of the next row."""
        self.rows += 1
        for name in names:
            if (column := self._by_name.get(name)) is not None:
                self._last[column] = self.rows
            elif name not in self._undeclared:
                self._more |= len(self._undeclared) >= MOST_UNDECLARED
                if not self._more:
                    self._undeclared[name] = None

    def seen(self) -> FieldsSeen:
        """The current state."""
        gone = [
            (each.name, each.name in self._last)
            for each in self._columns
            if self.rows - self._last.get(each.name, 0) >= LOST_AFTER
            and not (each.has_fill and each.name not in self._last)
        ]
        return FieldsSeen(
            self.rows,
            tuple(name for name, was_there in gone if was_there),
            tuple(name for name, was_there in gone if not was_there),
            tuple(self._undeclared),
            self._more,
        )
