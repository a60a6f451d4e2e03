"""Names of the fields that a record's row has, by the record itself and by its schema.

What is no row of the format has none: whether it may be there is for the format's decoder to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from schemas.avro.fallback import RegisteredRecords
from schemas.avro.projection import branches_of, fields_of, of_record
from schemas.avro.registered import Schemas, framed_id
from schemas.avro.writers.definitions import parsed
from schemas.avro.writers.meanings import MisfitError, Schema
from schemas.errors import Code, InputError
from schemas.formats.append import AppendFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Format
from schemas.formats.upsert import UpsertFormat

_AFTER = "after"
_FRAME = {"schema", "payload"}


class RowNames(Protocol):
    """Reads the names of fields in the row of a record."""

    def __call__(self, value: bytes) -> frozenset[str] | None:
        """A name whose value is null is there. None where the record has no row, or no row after the change.

        Raises: as `Schemas.get`.
        """


def row_names(format_: Format) -> RowNames | None:
    """The reader of the names; None for a format whose records have all of the declared columns."""
    half: str | None
    match format_:
        case DebeziumFormat():
            half = _AFTER
        case UpsertFormat() | AppendFormat():
            half = None
        case _:
            return None
    return JsonNames(half) if format_.encoding == "json" else RegisteredNames(format_.schemas_by_id, half)


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
        row = partial(of_record, columns=(), name="backfill.Row")
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
        except MisfitError:
            return None

    def _has_row(self, value: bytes) -> bool:
        try:
            found = self._records.read(value, general=Code.CHANGE_MALFORMED)
        except InputError:
            return False
        return self.half is None or found.get(self.half) is not None


def _row_fields(schema: Schema, half: str | None) -> Mapping[str, Schema]:
    fields = fields_of(schema)
    if half is None:
        return fields
    rows = branches_of(fields.get(half, "null"))
    return fields_of(rows[0]) if len(rows) == 1 else {}
