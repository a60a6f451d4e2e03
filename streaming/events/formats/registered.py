"""Schemas of test events whose records name them by id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.avro.output_schemas import text_of
from schemas.avro.registered import SchemaIds
from schemas.formats.protocol import Framed, Half
from schemas.table import Column, TableSchema
from streaming.registry.book import subjects
from streaming.registry.client import Registry


class RegisteredForm(Protocol):
    """The part of `OutputFormat` that says which schemas records have."""

    @property
    def framed(self) -> Framed: ...

    def schemas(  # noqa: D102
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]: ...


Register = Callable[[RegisteredForm, TableSchema], SchemaIds]
"""Makes sure of the schemas of records in this form."""


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """Those of a topic, under the subjects that producers use by default. The same events have the same ids again."""

    registry: Registry
    topic: str

    def __call__(self, form: RegisteredForm, table: TableSchema) -> SchemaIds:
        """Raises: as `Registry.register`."""
        named = subjects(self.topic, form.framed)
        schemas = form.schemas(table.columns, table.key_columns, self.topic)
        return SchemaIds(
            *(self.registry.register(named[half], text_of(schemas[half])) for half in ("key", "value"))
        )
