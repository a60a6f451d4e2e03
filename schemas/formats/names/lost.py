"""Declared columns that rows have no more, and fields that are not declared, over the rows of a running upstream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.table import TableSchema

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
