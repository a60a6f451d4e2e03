"""Declared columns in some rows, by the names of their fields. A declared column that no row has is an error.

A missing field is null, so a slip in a column's name would be a column of nulls, without an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from schemas.errors import Code, ConfigError
from schemas.faults import nearest
from schemas.table import Column, TableSchema

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
