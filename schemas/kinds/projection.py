"""Columns of an output: those of the table, under the names and masks that a job gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from schemas.faults import Faults, brief, nearest
from schemas.kinds.columns import IDENTIFIER, Column
from schemas.types import ColumnType, TypeName

if TYPE_CHECKING:
    from schemas.kinds.configs import ScanConfig
    from schemas.table import TableSchema

Mask = Literal["hash", "null", "prefix"]

_MASK = re.compile(r"(?P<mask>hash|prefix)\(\s*(?P<source>\w+)\s*(?:,\s*(?P<length>[0-9]{1,9})\s*)?\)")
_COMMA = re.compile(r",(?![^(]*\))")
"""One between columns, and not between the arguments of a mask."""
_HASH_TYPE = ColumnType(TypeName.STRING)
_NEVER_HASHED = (TypeName.FLOAT, TypeName.DOUBLE)


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of an output: `source` is that of the table, `length` of a `prefix` its code points."""

    name: str
    source: str
    mask: Mask | None = None
    length: int = 0

    @property
    def declared(self) -> str | dict[str, str | None]:
        """The column as a declaration has it."""
        if self.mask is None and self.name == self.source:
            return self.name
        return {self.name: self._shown}

    @property
    def _shown(self) -> str | None:
        match self.mask:
            case None:
                return self.source
            case "null":
                return None
            case "hash":
                return f"hash({self.source})"
            case "prefix":
                return f"prefix({self.source}, {self.length})"

    def __str__(self) -> str:
        """The column for people: `id`, `customer: cust_id`, `note: null`."""
        return self.name if isinstance(self.declared, str) else f"{self.name}: {self._shown or 'null'}"

    def of(self, column: Column) -> Column:
        """The output's column, of the table's."""
        if self.mask == "hash":
            return Column(self.name, _HASH_TYPE, column.nullable)
        return Column(self.name, column.type, column.nullable, was=column.was, read_as=column.read_as)


def plain(names: Sequence[str]) -> tuple[OutputColumn, ...]:
    """Columns as they are."""
    return tuple(OutputColumn(name, name) for name in names)


def output_columns(columns: Sequence[OutputColumn], table: TableSchema) -> tuple[Column, ...]:
    """The columns of an output's rows."""
    return tuple(each.of(table.by_name[each.source]) for each in columns)


def key_of(columns: Sequence[OutputColumn], key: Sequence[str]) -> tuple[OutputColumn, ...]:
    """The columns of its records' keys, made of these of the table: as its rows show them, if they do."""
    shown = {column.source: column for column in columns}
    return tuple(shown.get(name, OutputColumn(name, name)) for name in key)


def declared_projection(declared: object, table: TableSchema, faults: Faults) -> tuple[OutputColumn, ...]:
    """The columns that a job declares; all of the table's if it declares none."""
    if declared is None:
        return plain(table.column_names)
    read = [_read(each) for each in declared] if isinstance(declared, list) else []
    columns = [each for each in read if each is not None]
    if not columns or len(columns) < len(read):
        faults.add(f"columns {brief(declared)} is not a list of column names and of {{name: column or mask}}")
        return ()
    for column in columns:
        if fault := _fault(column, table):
            faults.add(f"columns {fault}")
    names = [column.name.lower() for column in columns]
    for name in dict.fromkeys(column.name for column in columns if names.count(column.name.lower()) > 1):
        faults.add(f"columns names {brief(name)} twice")
    return tuple(columns)


def declared_key(
    declared: object, columns: Sequence[OutputColumn], table: TableSchema, scan: ScanConfig, faults: Faults
) -> tuple[str, ...]:
    """The table's columns that a job has in the keys of its records; empty: the primary key's."""
    key = table.primary_key
    if declared is not None:
        if scan.reads_upstream or not table.has_key:
            faults.add(
                "key needs the rows before changes, of a replica: not with read: topic or format append"
            )
        elif not isinstance(declared, list) or not all(isinstance(name, str) for name in declared):
            faults.add(f"key {brief(declared)} is not a list of column names")
        else:
            key = tuple(dict.fromkeys(name for name in declared if name in table.by_name))
            for name in dict.fromkeys(declared):
                if name not in table.by_name:
                    faults.add(f"key names {brief(name)}, no such column{nearest(name, table.column_names)}")
                elif declared.count(name) > 1:
                    faults.add(f"key names {brief(name)} twice")
            if lacking := [name for name in table.primary_key if name not in declared]:
                faults.add(
                    f"key lacks {' and '.join(lacking)} of the primary key, without which two rows would be one"
                )
    for name in key:
        if fault := _fault_in_key(name, columns, table):
            faults.add(fault)
    return () if key == table.primary_key else key


def _fault_in_key(name: str, columns: Sequence[OutputColumn], table: TableSchema) -> str | None:
    shown = [column for column in columns if column.source == name]
    masks, kind = {column.mask for column in shown}, table.by_name[name].type
    if len(shown) > 1:
        names = " and ".join(column.name for column in shown)
        return f"columns names {brief(name)} as {names}, and it has one name in the key"
    if not shown and any(column.name.lower() == name.lower() for column in columns):
        return f"columns gives the name {brief(name)} to another column, and it is in the key"
    if name in table.primary_key:
        return None
    if masks & {"prefix", "null"}:
        return f"columns masks {name}, which is in the key and can only be hashed"
    if "hash" not in masks and not kind.allowed_in_key:
        return f"key names {name}, a {kind}: float, double and binary can't be in a key, unless hashed"
    return None


def columns_of_text(text: str) -> list[str | dict[str, str | None]]:
    """Columns as an option has them, `id, mail: hash(email), note: null`, in the form of a declaration."""
    found = list[str | dict[str, str | None]]()
    for part in _COMMA.split(text):
        name, colon, shown = (each.strip() for each in part.partition(":"))
        found.append({name: None if shown == "null" else shown} if colon else name)
    return found


def _read(declared: object) -> OutputColumn | None:
    """A column that may not be one of the table; None for another form."""
    if isinstance(declared, str):
        return OutputColumn(declared, declared)
    if not isinstance(declared, Mapping) or len(declared) != 1:
        return None
    name, shown = next(iter(declared.items()))
    if not isinstance(name, str) or not isinstance(shown, (str, type(None))):
        return None
    if shown is None:
        return OutputColumn(name, name, "null")
    match = _MASK.fullmatch(shown)
    if match is None or (match["mask"] == "prefix") != (match["length"] is not None):
        return OutputColumn(name, shown)
    if match["mask"] == "hash":
        return OutputColumn(name, match["source"], "hash")
    return OutputColumn(name, match["source"], "prefix", int(match["length"]))


def _fault(column: OutputColumn, table: TableSchema) -> str | None:
    if column.source not in table.by_name:
        masks = (
            "" if IDENTIFIER.fullmatch(column.source) else "; masks are hash(column), prefix(column, n), null"
        )
        hint = nearest(column.source, table.column_names)
        return f"names {brief(column.source)}, no such column{hint}{masks}"
    if not IDENTIFIER.fullmatch(column.name):
        return f"has the name {brief(column.name)}, which is not letters, digits and _ (128 at most)"
    kind = table.by_name[column.source].type
    if column.mask is not None and column.source in table.primary_key:
        return f"masks {column.source}, which is in the primary key: it stands in progress, and can only be renamed"
    if column.mask == "hash" and kind.name in _NEVER_HASHED:
        return f"hashes {column.source}, a {kind}, which has no one text for a value"
    if column.mask == "prefix" and kind.name is not TypeName.STRING:
        return f"takes a prefix of {column.source}, a {kind}, not a string"
    if column.mask == "prefix" and not column.length:
        return f"takes a prefix of {column.source} without a character"
    return None
