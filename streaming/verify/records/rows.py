r"""The output's view of an upstream's rows, all in canonical form: projected, masked, filtered.

Rows are kept and compared as bytes. What a job shows of one is made of its values, and written down again.

A filter is decided for one row at a time, in SQL's three-valued logic: TRUE, FALSE, or None for NULL. Only its syntax
tree is shared with the service; the evaluator goes by Spark SQL's rules:

- NULL compared with anything is NULL; a literal is never NULL, so NOT IN is NULL only for a NULL column.
- Numbers compare exactly; a float or double column meets the double nearest to the literal, NaN equals
  itself and is above every number, and -0.0 equals 0.0.
- Text compares by code points, which is UTF-8 order. In LIKE `%` is any text, `_` one character, `\` quotes.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from schemas.filter.ast import (
    And,
    Between,
    Comparison,
    Filter,
    InList,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    columns_of,
)
from schemas.kinds.projection import OutputColumn, key_of, output_columns, plain
from schemas.records import Row
from schemas.table import Column, TableSchema
from schemas.types import TypeName
from streaming.reading.entries import RowChange
from streaming.reading.records.forms import RowImages
from streaming.reading.records.written import cell_text
from streaming.reading.values.avro_bytes import RowCodec

Halves = tuple[bytes | None, bytes | None]
"""`before` and `after` of a change, each a row's bytes or None."""
_MOST_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A filter, row by row: `test` gets the values of `columns`, in order, and says TRUE, FALSE or None."""

    columns: tuple[str, ...]
    test: Callable[[Row], bool | None]


def _masked(shown: OutputColumn, column: Column, value: Any, hash_key: bytes) -> Any:
    """A value of the table's column as the output has it: docs/outputs.md#columns, written down a second time."""
    if value is None or shown.mask in (None, "null"):
        return None if shown.mask else value
    if shown.mask == "prefix":
        return value[: shown.length]
    text = value if column.type.name is TypeName.STRING else cell_text(column, value).strip('"')
    return hmac.new(hash_key, text.encode(), hashlib.sha256).hexdigest()


class OutputView:
    """A job's view of an upstream row: its columns if the filter is TRUE, else nothing.

    `columns` None means all of the table's, in declared order; `hash_key` is that of their hashes, `key` what the keys
    of records have of the table, if not its primary key alone. `rows_before`: of the output's changes; of those without
    rows before, an UPDATE is an INSERT, and a DELETE has nulls in all but the key columns.
    """

    def __init__(
        self,
        table: TableSchema,
        columns: Sequence[OutputColumn] | None = None,
        condition: RowCondition | None = None,
        rows_before: RowImages = RowImages.FULL,
        hash_key: bytes = b"",
        key: Sequence[str] = (),
    ) -> None:
        names = key or table.primary_key
        self._table, self._condition, self._hash_key = table, condition, hash_key
        self.rows_before, self.is_keyed = rows_before, bool(key)
        self._shown = plain(table.column_names) if columns is None else tuple(columns)
        self._in_key = key_of(self._shown, names)
        self.columns, self.key_columns = (output_columns(each, table) for each in (self._shown, self._in_key))
        self.is_masked = any(column.mask for column in self._shown)
        self._shows_all = condition is None and self._shown == plain(table.column_names)
        self._source, self._primary_keys = RowCodec(table.columns), RowCodec(table.key_columns)
        self.rows, self._keys = RowCodec(self.columns), RowCodec(self.key_columns)
        self._primary = [names.index(name) for name in table.primary_key]
        self._remembered = lru_cache(maxsize=_MOST_REMEMBERED)(self._seen)

    def primary(self, key: bytes) -> bytes:
        """The primary key in a record's key; the same where it is all of it."""
        if not self.is_keyed:
            return key
        values = self._keys.row(key)
        return self._primary_keys.row_bytes(tuple(values[at] for at in self._primary))

    def records(self, primary: bytes, before: bytes | None, after: bytes | None) -> list[RowChange]:
        """The output's records, in order, of a change of this primary key from one upstream row to another.

        One that moves the output's key is two: the old key's DELETE, and behind it the new one's INSERT.
        """
        old, new = self.of(before), self.of(after)
        keys = [primary, primary]
        if self.is_keyed:
            keys = [
                self._key(before if old is not None else after),
                self._key(after if new is not None else before),
            ]
        steps = [(keys[0], old, new)] if keys[0] == keys[1] else [(keys[0], old, None), (keys[1], None, new)]
        found = [RowChange(key, *self.change(*rows)) for key, *rows in steps]
        return [record for record in found if (record.before, record.after) != (None, None)]

    def _key(self, row: bytes | None) -> bytes:
        return b"" if row is None else self._projected(self._keys, self._in_key, self._values(row))

    def change(self, before: bytes | None, after: bytes | None) -> Halves:
        """The output's change from one row that it shows to another; two Nones where neither is shown."""
        if self.rows_before is RowImages.FULL:
            return before, after
        if before is None or after is not None:
            return None, after
        in_key = {column.source for column in self._in_key}
        values = zip(self._shown, self.rows.row(before), strict=True)
        return self.rows.row_bytes(tuple(v if each.source in in_key else None for each, v in values)), None

    def of(self, row: bytes | None) -> bytes | None:
        """The output's row for an upstream row (both as bytes), None if there is none to show."""
        return row if row is None or self._shows_all else self._remembered(row)

    def _seen(self, row: bytes) -> bytes | None:
        values, condition = self._values(row), self._condition
        if condition is not None and condition.test(tuple(map(values.get, condition.columns))) is not True:
            return None
        return self._projected(self.rows, self._shown, values)

    def _values(self, row: bytes) -> dict[str, Any]:
        return dict(zip(self._table.column_names, self._source.row(row), strict=True))

    def _projected(self, codec: RowCodec, columns: Sequence[OutputColumn], values: dict[str, Any]) -> bytes:
        cells = ((each, self._table.by_name[each.source], values[each.source]) for each in columns)
        return codec.row_bytes(tuple(_masked(*cell, self._hash_key) for cell in cells))


def differing(codec: RowCodec, one: bytes, other: bytes) -> list[str]:
    """The names of the columns in which two rows differ."""
    cells = zip(codec.columns, codec.row(one), codec.row(other), strict=True)
    return [column.name for column, here, there in cells if repr(here) != repr(there)]


Test = Callable[[Row], bool | None]
Sortable = Callable[[Any], Any]
"""Maps the values of one column, and literals, to things that Python orders as Spark orders the column."""

_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_FLOATING = frozenset({TypeName.FLOAT, TypeName.DOUBLE})


def condition_of(tree: Filter, table: TableSchema) -> RowCondition:
    """The filter, parsed against `table`, as a test of a row's values."""
    columns = columns_of(tree)
    return RowCondition(columns, _Compiler(table, columns).test(tree))


class _Compiler:
    def __init__(self, table: TableSchema, columns: tuple[str, ...]) -> None:
        self._table, self._columns = table, columns

    def test(self, tree: Filter) -> Test:
        match tree:
            case And(terms):
                return _all([self.test(term) for term in terms])
            case Or(terms):
                return _negation(_all([_negation(self.test(term)) for term in terms]))
            case Not(term):
                return _negation(self.test(term))
            case IsNull(column):
                index = self._columns.index(column)
                return lambda row: row[index] is None
            case Comparison(column, op, literal):
                compare, sortable = _COMPARE[op], self._sortable(column)
                bound = sortable(literal)
                return self._on(column, lambda value: compare(sortable(value), bound))
            case Between(column, low, high):
                sortable = self._sortable(column)
                least, most = sortable(low), sortable(high)
                return self._on(column, lambda value: least <= sortable(value) <= most)
            case InList(column, literals):
                sortable = self._sortable(column)
                members = frozenset(sortable(literal) for literal in literals)
                return self._on(column, lambda value: sortable(value) in members)
            case Like(column, pattern):
                like = _like(pattern)
                return self._on(column, lambda value: like.fullmatch(value) is not None)

    def _on(self, column: str, decide: Callable[[Any], bool]) -> Test:
        index = self._columns.index(column)
        return lambda row: None if row[index] is None else decide(row[index])

    def _sortable(self, column: str) -> Sortable:
        return _floating if self._table.by_name[column].type.name in _FLOATING else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _floating(value: Any) -> tuple[bool, float]:
    number = float(value)
    return (True, 0.0) if math.isnan(number) else (False, number)


def _all(tests: list[Test]) -> Test:
    def decide(row: Row) -> bool | None:
        answers = [test(row) for test in tests]
        if False in answers:
            return False
        return None if None in answers else True

    return decide


def _negation(test: Test) -> Test:
    def decide(row: Row) -> bool | None:
        answer = test(row)
        return None if answer is None else not answer

    return decide


def _like(pattern: str) -> re.Pattern[str]:
    """A pattern of LIKE as a regular expression, which takes no longer than text times pattern.

    Each `%` but the last takes the shortest text behind which the next piece matches, and keeps it: a match that there
    is, is found so.
    """
    parts, characters = [""], iter(pattern)
    for character in characters:
        if character == "%":
            parts.append("")
        elif character == "_":
            parts[-1] += "."
        else:
            parts[-1] += re.escape(next(characters) if character == "\\" else character)
    first, *others = parts
    inner = "".join(f"(?>.*?{part})" for part in others[:-1])
    return re.compile(first + inner + (f".*{others[-1]}" if others else ""), re.DOTALL)
