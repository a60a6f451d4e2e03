"""The common part of outputs with a choice of encodings, one of them by a schema registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr

from schemas.avro.registered import SchemaIds
from schemas.formats.protocol import Framed, KeyEncoder, OutputFormat, ValueEncoder
from schemas.table import Column


class EncodedOutput(OutputFormat):
    """An output in JSON or Avro. The ids of its schemas are no part of the declaration, as with `RegistryFormat`."""

    encoding: Annotated[
        Literal["json", "json-schema", "avro-registry"],
        Field(
            description="`json`, objects in UTF-8, which is its default; `json-schema`, the same in Kafka Connect's "
            "frame, with the schema in each record; or `avro-registry`, Avro by schemas that the registry has, whose "
            "ids stand in front."
        ),
    ] = "json"
    _ids: SchemaIds | None = PrivateAttr(default=None)

    @property
    def framed(self) -> Framed:
        is_framed = self.encoding == "avro-registry"
        return Framed(key=is_framed, value=is_framed)

    @property
    def ids(self) -> SchemaIds | None:
        return self._ids

    def with_ids(self, ids: SchemaIds) -> Self:
        if not self.framed:
            return self
        copy = self.model_copy()
        copy._ids = ids
        return copy

    @property
    def registered(self) -> SchemaIds:
        """The ids. Raises: ValueError as long as there are none."""
        if self._ids is None:
            raise ValueError("the schemas of this output are not registered")
        return self._ids


class KeyedOutput(EncodedOutput):
    """An output whose records have the key of their row."""

    # Encoders need packages that commands such as `list` do without.

    def keys(self, key_columns: Sequence[Column]) -> KeyEncoder:
        if self.encoding == "avro-registry":
            from schemas.formats.outputs.avro_records import FramedKeys

            return FramedKeys(tuple(key_columns), self.registered.key)
        from schemas.formats.outputs.json_records import ObjectKeys

        return ObjectKeys(tuple(key_columns), self.encoding)


class RowOutput(EncodedOutput):
    """An output whose value is the row after the projection."""

    def values(self, columns: Sequence[Column]) -> ValueEncoder:
        if self.encoding == "avro-registry":
            from schemas.formats.outputs.avro_records import FramedUpserts

            return FramedUpserts(tuple(columns), self.registered.value)
        from schemas.formats.outputs.json_records import ObjectUpserts

        return ObjectUpserts(tuple(columns), self.encoding)

    def row_schema(self, name: str, columns: Sequence[Column], topic: str) -> dict[str, object]:
        """The schema of such a value, or of a key of these columns."""
        if self.encoding == "avro-registry":
            from schemas.avro.output_schemas import row_record

            return row_record(name, columns, topic)
        from schemas.formats.outputs.json_records import row_schema

        return row_schema(name, columns, self.encoding)
