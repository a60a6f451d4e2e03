"""Debezium's events in JSON, taken apart by whole columns: those without a frame around them.

Arrow's reader takes from an event what it is asked for, and passes over the rest. What it would take, and the twin
(`schemas.formats.events.debezium_json`) would refuse, is looked for in the bytes: `NaN` in the place of a value, and
what is so long or deep that it might be beyond the limits of Spark's reader. One odd record is an `OddRecordError` for
all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from schemas.formats.by_columns.debezium import Events
from schemas.formats.by_columns.limits import check_limits
from schemas.formats.events.logs import NUMBERS, TEXTS
from schemas.formats.events.rows import halves
from schemas.json.debezium_columns import DebeziumColumnValues
from schemas.json.objects import parsed
from schemas.records import OddRecordError, refuse
from schemas.table import Column
from schemas.types import TypeName

_SEARCHED = 100
"""Events in which a value of each instant is looked for."""


@dataclass(frozen=True)
class JsonEvents:
    """See `schemas.formats.by_columns.debezium.EventReader`; `settings` say what values mean."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    settings: DebeziumColumnValues
    whole: bool
    transactions: bool

    @property
    def can_read(self) -> bool:
        """Whether it is known what values mean: the settings say it, or schemas."""
        return all(map(self.settings.can_read, (*self.columns, *self.key_columns)))

    def read(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Events:
        """Raises: OddRecordError."""
        check_limits(values)
        for column in self.columns:
            self.settings.check_schema(column)
        zones = self._with_zones(values)
        own = JsonKeys(self.key_columns, self.settings).read(keys, zones)
        return Events(own, parsed(values, self._fields(zones), others="ignore"))

    def placeholders(self, column: Column, found: pa.Array) -> pa.BooleanArray | None:
        """Where the connector left the value out."""
        return self.settings.placeholders(column, found)

    def values(self, column: Column, found: pa.Array) -> pa.Array:
        """Raises: OddRecordError."""
        return self.settings.values(column, found)

    def _fields(self, zones: frozenset[str]) -> list[pa.Field]:
        row = pa.struct([self.settings.field(each, has_zone=each.name in zones) for each in self.columns])
        numbers = (*NUMBERS, "txId") if self.transactions else NUMBERS
        source = [(name, pa.string()) for name in TEXTS]
        source += [(name, pa.int64()) for name in numbers]
        names = halves(whole=self.whole)
        return [
            pa.field("op", pa.string()),
            *(pa.field(name, row) for name in names),
            pa.field("source", pa.struct(source)),
        ]

    def _with_zones(self, texts: pa.BinaryArray) -> frozenset[str]:
        """The columns of instants that are texts, as those with a time zone are: by the first value of each."""
        found = dict[str, bool]()
        unknown = {each.name for each in self.columns if each.type.name is TypeName.TIMESTAMP}
        for text in texts.slice(0, _SEARCHED).to_pylist() if unknown else ():
            row = _row_in(text)
            found |= {name: isinstance(row[name], str) for name in unknown if row.get(name) is not None}
            unknown -= found.keys()
            if not unknown:
                break
        return frozenset(name for name, is_text in found.items() if is_text)


@dataclass(frozen=True)
class JsonKeys:
    """Record keys without a frame: objects of the key columns. See `formats.protocol.KeyReader`."""

    key_columns: tuple[Column, ...]
    settings: DebeziumColumnValues

    @property
    def can_read(self) -> bool:
        """Whether the settings say what values of the key columns mean."""
        return all(map(self.settings.can_read, self.key_columns))

    def __call__(self, keys: pa.BinaryArray) -> list[pa.Array]:
        """Raises: OddRecordError."""
        first = _object(keys[0].as_py()) if len(keys) else {}
        return self.read(keys, frozenset(name for name, value in first.items() if isinstance(value, str)))

    def read(self, texts: pa.BinaryArray, zones: frozenset[str]) -> list[pa.Array]:
        """The key columns, in key order; instants of the columns `zones` are texts. Raises: OddRecordError."""
        check_limits(texts)
        for column in self.key_columns:
            self.settings.check_schema(column)
        fields = [self.settings.field(each, has_zone=each.name in zones) for each in self.key_columns]
        found = parsed(texts, fields).flatten()
        refuse(any(each.null_count for each in found))
        return [self.settings.values(*pair) for pair in zip(self.key_columns, found, strict=True)]


def _row_in(text: bytes) -> Mapping[str, Any]:
    """The row after or before in an event. Raises: OddRecordError."""
    event = _object(text)
    row = event.get("after") or event.get("before") or {}
    refuse(not isinstance(row, dict))
    return dict(row)


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise OddRecordError from None
    refuse(not isinstance(found, dict))
    return dict(found)
