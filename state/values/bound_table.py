"""The table of a state in its newest version, as the binding in the journal's entries has it.

A version differs from the one before by columns behind the others, by further names of columns in records, and by
wider types. What the state has stays, whatever a configuration says: a file may be behind it, and may add to it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.errors import Code, StateError
from schemas.kinds.columns import Column, FormerNames, FormerType, are_among, declared_columns
from schemas.kinds.table_changes import IgnoreField, TableChange, altered, missing_accepted
from schemas.table import KEYS, TableSchema, declare
from schemas.types import ColumnType

_IGNORED, _IGNORED_ALL, _WIDTHS = "ignored_columns", "ignored_all", "widths"
_WAS, _RETIRED, _READ_AS, _UNREAD = "was", "retired", "read_as", "unread"
"""Keys that are written where there is something to say."""


@dataclass(frozen=True, slots=True)
class BoundTable:
    """A version of a state's table.

    `ignored` are fields of records that are ignored by name. `ignored_all`: any other field was ignored, too, while
    some records were read. `widths` are the numbers of columns of all versions, the newest last. `unread` are columns
    of the Delta table that the state started from, which it has not taken.
    """

    table: TableSchema
    ignored: frozenset[str] = frozenset()
    ignored_all: bool = True
    widths: tuple[int, ...] = ()
    unread: frozenset[str] = frozenset()

    @classmethod
    def first(cls, table: TableSchema, ignored: Collection[str] | None) -> BoundTable:
        """The table of a new state. `ignored`: None where any field is that is no column."""
        return cls(table, frozenset(ignored or ()), ignored is None, (len(table.columns),))

    @classmethod
    def from_binding(cls, bound: str) -> BoundTable:
        """The version that `to_dict` gave."""
        raw = json.loads(bound)
        table = declare({key: value for key, value in raw.items() if key in KEYS}, has_key=None)
        was = {
            name: tuple(FormerType(epoch, ColumnType.parse(kind)) for epoch, kind in types)
            for name, types in raw.get(_WAS, {}).items()
        }
        read_as = {
            name: tuple(FormerNames(epoch, tuple(names)) for epoch, names in former)
            for name, former in raw.get(_READ_AS, {}).items()
        }
        retired = raw.get(_RETIRED, ())
        columns = (
            replace(
                column,
                was=was.get(column.name, ()),
                is_retired=column.name in retired,
                read_as=read_as.get(column.name, ()),
            )
            for column in table.columns
        )
        table = replace(table, columns=tuple(columns))
        widths = tuple(raw.get(_WIDTHS, (len(table.columns),)))
        ignored, unread = frozenset(raw.get(_IGNORED, ())), frozenset(raw.get(_UNREAD, ()))
        return cls(table, ignored, raw.get(_IGNORED_ALL, True), widths, unread)

    def to_dict(self) -> dict[str, Any]:
        """JSON values for a binding."""
        own = {_IGNORED: sorted(self.ignored), _IGNORED_ALL: self.ignored_all, _WIDTHS: list(self.widths)}
        was = {
            column.name: [[former.epoch, str(former.type)] for former in column.was]
            for column in self.table.columns
            if column.was
        }
        retired = [column.name for column in self.table.columns if column.is_retired]
        read_as = {column.name: column.read_as for column in self.table.columns if column.read_as}
        also = {_WAS: was, _RETIRED: retired, _READ_AS: read_as, _UNREAD: sorted(self.unread)}
        return {**self.table.to_dict(), **own, **{key: found for key, found in also.items() if found}}

    def declared(
        self, table: TableSchema, ignored: Collection[str] | None, *, state: str, is_read: bool = True
    ) -> BoundTable:
        """The version that a configuration makes of this one. `ignored` as in `first`.

        It may have further columns, behind the others, and further names of columns, if no record before can have had
        them; not until the table `is_read` from its database, for chunks of its rows are there without them. Narrower
        types than the state's are those of a file that is behind.
        Raises: StateError(SCHEMA_CHANGED, VNODE_LAYOUT_CHANGED, PK_CHANGED, COLUMN_WAS_IGNORED).
        """
        self._refuse_other(table, state)
        made = replace(self.table, columns=tuple(self._columns(table)))
        _refuse_contradiction(made, state)
        ignores = self.ignored.union(ignored or ())
        version = replace(self, table=made, ignored=ignores, ignored_all=self.ignored_all or ignored is None)
        return version._after(self, state, is_read=is_read)

    def altered(
        self, changes: Sequence[TableChange], *, state: str, is_read: bool = True, epoch: int = 0
    ) -> BoundTable:
        """The version with these changes, of which no row up to `epoch` has a wider type, or values that are missing.

        Raises: ConfigError(TABLE_INVALID), as `altered`; as `declared`.
        """
        ignored = {change.name for change in changes if isinstance(change, IgnoreField)}
        table = altered(self.table, changes)
        altered(table, [IgnoreField(name) for name in sorted(ignored)])  # of changes in any order
        columns = (_widened(self.table.by_name.get(each.name), each, epoch) for each in table.columns)
        table = replace(table, columns=tuple(columns))
        version, accepted = replace(self, table=table), missing_accepted(changes)
        version = version._accepting(self, accepted, epoch)._after(
            self, state, is_read=is_read, accepted=accepted
        )
        return replace(version, ignored=version.ignored | ignored)

    def _accepting(self, former: BoundTable, accepted: Collection[str], epoch: int) -> BoundTable:
        """This version; columns that had `accepted` names in records up to `epoch` are not read by these."""
        columns = list[Column]()
        for column in self.table.columns:
            if any(_is_accepted(name, column, accepted) for name in self._ignored_names(former, column)):
                names = FormerNames(epoch, _names_in(former.table, column))
                column = replace(column, read_as=(*column.read_as, names))
            columns.append(column)
        return replace(self, table=replace(self.table, columns=tuple(columns)))

    def _ignored_names(self, former: BoundTable, column: Column) -> Iterator[str]:
        """The names that a column had not in another version, and that were ignored in records since.

        Its own is among them if rows had it in the table that the state started from.
        """
        known = _names_in(former.table, column)
        if not known and column.name in self.unread:
            yield column.name
        for name in column.names_in_records:
            if name not in known and (self.ignored_all or name in self.ignored):
                yield name

    def _after(
        self, former: BoundTable, state: str, *, is_read: bool, accepted: Collection[str] = ()
    ) -> BoundTable:
        """This version, which follows another one. Raises: StateError, as `declared`."""
        if _content(self.table) != _content(former.table):
            if not is_read:
                found = "further columns, names or types, and a table that is being read to start from"
                raise StateError(Code.SCHEMA_CHANGED, where=state, found=found)
            self._refuse_ignored(former, state, accepted)
        return replace(self, widths=tuple(sorted({*self.widths, len(self.table.columns)})))

    def _columns(self, table: TableSchema) -> Iterator[Column]:
        """The columns of the state, each with the names that either has, and then those that it lacks."""
        for own in self.table.columns:
            declared = table.by_name.get(own.name, own)
            has_names = are_among(own.names_in_records, declared.names_in_records)
            kept = replace(declared, type=own.type, fill=own.fill).with_past_of(own)
            yield kept if has_names else own
        yield from (column for column in table.columns if column.name not in self.table.by_name)

    def _refuse_other(self, table: TableSchema, state: str) -> None:
        before, declared = self.table.to_dict(), table.to_dict()
        changed = [
            key for key in {**declared, **before} if key != "columns" and declared.get(key) != before.get(key)
        ]
        differences = [
            f"{key} was {json.dumps(before.get(key))}, is {json.dumps(declared.get(key))}" for key in changed
        ]
        differences += self._other_columns(table)
        if not differences:
            return
        code = Code.SCHEMA_CHANGED
        if {"vnode_count", "distribution_key", "distribution"} & set(changed):
            code = Code.VNODE_LAYOUT_CHANGED
        elif "primary_key" in changed:
            code = Code.PK_CHANGED
        raise StateError(code, where=state, found=f"a state of another table: {'; '.join(differences)}")

    def _other_columns(self, table: TableSchema) -> Iterator[str]:
        """The columns that are declared otherwise than the state has them, in words."""
        for column in table.columns:
            own = self.table.by_name.get(column.name)
            if own is not None and not _agree(own, column):
                yield f"column {column.name} was {_text(own)}, is {_text(column)}"
        common = [name for name in self.table.column_names if name in table.by_name]
        if list(table.column_names[: len(common)]) != common:
            yield f"columns begin with {', '.join(table.column_names)}, and not with {', '.join(common)}"

    def _refuse_ignored(self, former: BoundTable, state: str, accepted: Collection[str]) -> None:
        """Raises: StateError(COLUMN_WAS_IGNORED) for a new column or name that earlier records may have had."""
        for column in self.table.columns:
            for name in self._ignored_names(former, column):
                if not _is_accepted(name, column, accepted):
                    why = "and records that were read while such fields were ignored"
                    why = why if self.ignored_all else "a field that was ignored"
                    found = f"{name!r} of column {column.name}, {why}"
                    raise StateError(Code.COLUMN_WAS_IGNORED, where=state, found=found)


def _widened(own: Column | None, column: Column, epoch: int) -> Column:
    """A column, with the type that it has had up to `epoch` if that was another one."""
    if own is None or own.type == column.type:
        return column
    return replace(column, was=(*own.was, FormerType(epoch, own.type)))


def _names_in(table: TableSchema, column: Column) -> tuple[str, ...]:
    """The names in records that a column has in a version; none if it is not there."""
    own = table.by_name.get(column.name)
    return () if own is None else own.names_in_records


def _is_accepted(name: str, column: Column, accepted: Collection[str]) -> bool:
    return name in accepted or column.name in accepted


def _content(table: TableSchema) -> list[object]:
    return [(column, column.names_in_records) for column in table.columns]


def _refuse_contradiction(table: TableSchema, state: str) -> None:
    """Raises: StateError(SCHEMA_CHANGED) for columns of a file that can't be beside those of a state."""
    faults = list[str]()
    declared_columns({column.name: column.declared for column in table.columns}, faults)
    if faults:
        found = f"columns beside those of the state: {'; '.join(faults)}"
        raise StateError(Code.SCHEMA_CHANGED, where=state, found=found)


def _agree(own: Column, declared: Column) -> bool:
    """True if two columns are one, with other names in records and a narrower declared type at most."""
    names, others = own.names_in_records, declared.names_in_records
    return own.is_alike(declared) and (are_among(names, others) or are_among(others, names))


def _text(column: Column) -> str:
    declared: str | Mapping[str, Any] = column.declared
    return declared if isinstance(declared, str) else json.dumps(declared)
