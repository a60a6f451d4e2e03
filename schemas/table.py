"""The upstream table: columns with types, primary key in order, distribution key, number of vnodes.

Declared once and fixed for the life of a replica. Two orders matter and must not be mixed up: columns
are in declared order (rows), key columns in primary-key order (keys, positions). The distribution key
is a subset of the primary key, in its own declared order, since a vnode is a hash over its columns in
that order. Rows of some upstreams have no identity: such a table has neither key, and nothing is kept of it.
Vnodes may also be the partitions of the upstream (`distribution: upstream`); then the topic has their number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from schemas.errors import Code, ConfigError
from schemas.faults import nearest as nearest
from schemas.kinds.columns import IDENTIFIER, declared_columns
from schemas.kinds.columns import RESERVED_PREFIX as RESERVED_PREFIX
from schemas.kinds.columns import Column as Column
from schemas.types import TYPE_NAMES, ColumnType, Value

DEFAULT_VNODE_COUNT = 64
MIN_VNODE_COUNT, MAX_VNODE_COUNT = 2, 32_768

HASH, UPSTREAM = "hash", "upstream"
"""Sources of a row's vnode: a hash of its distribution key, or the upstream partition that it came in."""


@dataclass(frozen=True)
class TableSchema:
    """A validated declaration. Build it with `declare`, which reports every fault at once.

    `by_partition`: the vnode of a row is the upstream partition that it came in. Then `vnode_count` is 0 until the
    partitions have been counted (`with_partitions`), and there is no distribution key.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    distribution_key: tuple[str, ...]
    vnode_count: int
    by_partition: bool = False

    @property
    def has_key(self) -> bool:
        """False for rows without identity, which have no vnode and no replica."""
        return bool(self.primary_key)

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by name, in declared order."""
        return {column.name: column for column in self.columns}

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """All columns' names in declared order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def fills(self) -> Mapping[str, Value]:
        """The values of columns in rows whose files or records lack them, by name, but those that are null."""
        return {column.name: column.fill for column in self.columns if column.fill is not None}

    @cached_property
    def hashed_columns(self) -> tuple[Column, ...]:
        """The columns that hashes of whole rows are over: none that rows of an older file may lack, but for null."""
        return tuple(column for column in self.columns if column.fill is None)

    @cached_property
    def hashed_after(self) -> int:
        """The epoch up to which hashes of whole rows may be over narrower types or other values, 0 for none."""
        types = (former.epoch for column in self.columns for former in column.was)
        return max([*types, *self.unread_until], default=0)

    @cached_property
    def unread_until(self) -> frozenset[int]:
        """The epochs up to which columns were read by other names than now."""
        return frozenset(former.epoch for column in self.columns for former in column.read_as)

    @property
    def incomplete(self) -> tuple[str, ...]:
        """The columns that earlier records may have had under names that were ignored then."""
        return tuple(column.name for column in self.columns if column.read_as)

    @cached_property
    def expected_columns(self) -> tuple[Column, ...]:
        """The columns beside the key that schemas of records should have: all but those that are retired."""
        key = frozenset(self.primary_key)
        return tuple(each for each in self.columns if not each.is_retired and each.name not in key)

    def as_read(self, epoch: int) -> TableSchema:
        """The table by the names that its columns have in the records of a batch."""
        if epoch > max(self.unread_until, default=0):
            return self
        return replace(self, columns=tuple(column.as_read(epoch) for column in self.columns))

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The primary key's columns in key order."""
        return tuple(self.by_name[name] for name in self.primary_key)

    @cached_property
    def key_indices(self) -> tuple[int, ...]:
        """The indices of the key columns in a row, in key order."""
        return tuple(self.column_names.index(name) for name in self.primary_key)

    def key_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """The primary key of a row given in declared column order."""
        return tuple(row[index] for index in self.key_indices)

    def select(self, names: Sequence[str]) -> tuple[Column, ...]:
        """The named columns in the order of `names`. KeyError for one that the table does not have."""
        return tuple(self.by_name[name] for name in names)

    def with_partitions(self, upstream: int) -> TableSchema:
        """This table with `upstream` vnodes, where these are the partitions of the upstream."""
        return replace(self, vnode_count=upstream) if self.by_partition else self

    def to_dict(self) -> dict[str, Any]:
        """The declaration, with every default written out; `declare` reads it back."""
        named = {
            "name": self.name,
            "columns": {column.name: column.declared for column in self.columns},
        }
        if not self.has_key:
            return named
        if self.by_partition:
            return {**named, "primary_key": list(self.primary_key), "distribution": UPSTREAM}
        return {
            **named,
            "primary_key": list(self.primary_key),
            "distribution_key": list(self.distribution_key),
            "vnode_count": self.vnode_count,
        }


KEYS = {
    "name": ("", "Letters, digits and `_`."),
    "columns": (
        "",
        f"Name: type; types are `{' '.join(TYPE_NAMES)}`. Or name: a mapping with `type`, and what records have "
        "otherwise: `field`, its name there, any text, or a list, of which the first that a record has counts; `time`, "
        "`decimal` and `unsigned`, its [units](debezium.md#units-by-column); `fill`, its value in rows whose "
        "[records lack it](formats.md#columns-that-no-record-has). Left out with `upsert` and `debezium`: those of the "
        "newest schema, of the registry or a frame, and `on_new_column: add`.",
    ),
    "primary_key": (
        "",
        "Columns, in order; not `float`, `double` or `binary`; never null. Left out, as the next three, for "
        "`format: append`.",
    ),
    "distribution": (
        f"`{HASH}`",
        f"What decides the vnode of a row: `{HASH}` of the distribution key, or `{UPSTREAM}`, the upstream partition "
        "that it came in: [no-shuffle](kinds.md#no-shuffle-backfill), which has neither of the next two.",
    ),
    "distribution_key": ("`primary_key`", "Part of the primary key whose hash decides the vnode."),
    "vnode_count": (f"`{DEFAULT_VNODE_COUNT}`", f"{MIN_VNODE_COUNT} to {MAX_VNODE_COUNT}."),
}
"""The keys of a declaration: default and meaning, in Markdown."""

_REQUIRED = ("name", "columns")
_OF_KEY = ("primary_key", "distribution", "distribution_key", "vnode_count")
_OF_HASH = ("distribution_key", "vnode_count")


def declare(
    declaration: Mapping[str, Any], *, where: str = "table", has_key: bool | None = True
) -> TableSchema:
    """Check a declaration as read from YAML or JSON.

    `has_key` says whether its rows have an identity, which follows from the upstream's format; None: either will do.

    Raises:
        ConfigError: TABLE_INVALID, naming every fault in one message, so that one correction is enough.
    """
    if not isinstance(declaration, Mapping):
        raise _invalid(where, f"{type(declaration).__name__} instead of a mapping")
    faults = [f"unknown key {key!r}{nearest(str(key), list(KEYS))}" for key in declaration if key not in KEYS]
    faults += [f"no {key!r}" for key in _REQUIRED if key not in declaration]
    faults += _identity_faults(declaration, has_key)
    name = declaration.get("name", "table")
    if not (isinstance(name, str) and IDENTIFIER.fullmatch(name)):
        faults.append(f"name {name!r} is not letters, digits and _ (128 at most)")
    key = _names(declaration, "primary_key", faults)
    distribution = _names(declaration, "distribution_key", faults) or key
    by_partition = _by_partition(declaration, faults)
    given = declaration.get("columns")
    declared = declared_columns(given, faults) if "columns" in declaration else []
    # What has a fault of its own is a column all the same.
    unread = set(given) if isinstance(given, Mapping) else set(key)
    faults += _key_faults(key, distribution, {column.name: column.type for column in declared}, unread)
    faults += [
        f"primary_key column {column.name} has {'a fill' if column.fill is not None else 'several fields'}: a key has "
        "its columns in each record, under one name"
        for column in declared
        if column.name in key and (column.fill is not None or column.aliases)
    ]
    vnode_count = declaration.get("vnode_count", DEFAULT_VNODE_COUNT)
    if type(vnode_count) is not int or not MIN_VNODE_COUNT <= vnode_count <= MAX_VNODE_COUNT:
        limits = f"{MIN_VNODE_COUNT}..{MAX_VNODE_COUNT}"
        faults.append(f"vnode_count {vnode_count!r} is not a whole number in {limits}")
    if faults:
        raise _invalid(where, "; ".join(faults))
    columns = tuple(replace(column, nullable=column.name not in key) for column in declared)
    if by_partition:
        return TableSchema(str(name), columns, tuple(key), (), 0, by_partition=True)
    return TableSchema(str(name), columns, tuple(key), tuple(distribution), vnode_count)


def _invalid(where: str, found: str) -> ConfigError:
    return ConfigError(Code.TABLE_INVALID, where=where, found=found)


def _identity_faults(declaration: Mapping[str, Any], has_key: bool | None) -> list[str]:
    given = [key for key in _OF_KEY if declaration.get(key) is not None]
    if has_key is False or (has_key is None and not given):
        return [f"{key!r} is given, and rows of format append have no identity" for key in given]
    return [] if "primary_key" in given else ["no 'primary_key'"]


def _by_partition(declaration: Mapping[str, Any], faults: list[str]) -> bool:
    distribution = declaration.get("distribution")
    if distribution not in (None, HASH, UPSTREAM):
        faults.append(f"distribution {distribution!r} is not one of: {HASH}, {UPSTREAM}")
    if distribution != UPSTREAM:
        return False
    given = [key for key in _OF_HASH if declaration.get(key) is not None]
    faults += [f"{key!r} is given, and with distribution: {UPSTREAM} a vnode is a partition" for key in given]
    return True


def _names(declaration: Mapping[str, Any], key: str, faults: list[str]) -> list[str]:
    value = declaration.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        faults.append(f"{key} is {value!r}, not a list of column names")
        return []
    if len(set(value)) != len(value):
        faults.append(f"{key} names a column twice")
    return list(value)


def _key_faults(
    key: list[str], distribution: list[str], types: Mapping[str, ColumnType], unread: Collection[object]
) -> list[str]:
    """The faults of both keys; columns of unknown type are `unread`."""
    faults = []
    for name in key:
        if name not in types and name in unread:
            continue
        if name not in types:
            faults.append(f"primary_key names {name!r}, no such column{nearest(name, list(types))}")
        elif not types[name].allowed_in_key:
            faults.append(
                f"primary_key column {name} is {types[name]}: float, double and binary can't be in a key"
            )
    faults += [
        f"distribution_key column {name!r} is not in the primary key{nearest(name, key)}"
        for name in distribution
        if name not in key
    ]
    return faults
