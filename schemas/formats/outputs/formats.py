"""Formats that only outputs have, `upsert` and `debezium`, and the common part of outputs in several encodings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr

from schemas.avro.registered import SchemaIds, frame
from schemas.formats.debezium import key_incompatibility
from schemas.formats.protocol import Framed, Half, Images, KeyEncoder, OutputFormat, ValueEncoder
from schemas.table import Column, TableSchema

if TYPE_CHECKING:
    from schemas.formats.outputs.records import AvroRowEncoder, JsonRowEncoder


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

    # Encoders need packages that commands such as `list` do without.

    def row_encoder(
        self, name: Literal["Key", "Value"], columns: Sequence[Column]
    ) -> JsonRowEncoder | AvroRowEncoder:
        """Encodes rows or keys of these columns."""
        from schemas.formats.outputs.records import AvroRowEncoder, JsonRowEncoder

        if self.encoding != "avro-registry":
            return JsonRowEncoder(name, tuple(columns), self.encoding)
        ids = self.registered
        return AvroRowEncoder(tuple(columns), frame(ids.key if name == "Key" else ids.value))

    def row_schema(self, name: str, columns: Sequence[Column], topic: str) -> dict[str, object]:
        """The schema of a row or a key of these columns."""
        if self.encoding == "avro-registry":
            from schemas.avro.output_schemas import row_record

            return row_record(name, columns, topic)
        from schemas.formats.outputs.records import row_schema

        return row_schema(name, columns, self.encoding)


class KeyedOutput(EncodedOutput):
    """An output whose records have the key of their row."""

    def keys(self, key_columns: Sequence[Column]) -> KeyEncoder:
        return self.row_encoder("Key", key_columns)


class RowOutput(EncodedOutput):
    """An output whose value is the row after the projection."""

    def values(self, columns: Sequence[Column]) -> ValueEncoder:
        from schemas.formats.outputs.records import UpsertEncoder

        return UpsertEncoder(self.row_encoder("Value", columns))


class UpsertOutput(RowOutput, KeyedOutput):
    """A value is the row after the projection, and a null is a DELETE."""

    format: Annotated[
        Literal["upsert"],
        Field(description="the row of a key as it is now; a record without a value deletes it."),
    ] = "upsert"

    @property
    def images(self) -> Images:
        return Images.AFTER_ONLY

    @property
    def may_be_null(self) -> bool:
        return True

    def schemas(
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]:
        return {
            "key": self.row_schema("Key", key_columns, topic),
            "value": self.row_schema("Value", columns, topic),
        }


class DebeziumOutput(KeyedOutput):
    """Events `r` for rows of the snapshot read and `c`, `u` and `d` for changes, each with its source."""

    names_origin: ClassVar[bool] = True
    format: Annotated[
        Literal["debezium"],
        Field(description="change events as a Debezium connector writes them, with the whole row before."),
    ] = "debezium"
    tombstones: Annotated[
        bool, Field(description="whether a record without a value follows each delete, for compaction.")
    ] = True

    @property
    def may_be_null(self) -> bool:
        return self.tombstones

    @property
    def tombstone_follows(self) -> bool:
        return self.tombstones

    def incompatibility_of_columns(self, table: TableSchema) -> str | None:
        return None if self.framed else key_incompatibility(table)

    def values(self, columns: Sequence[Column]) -> ValueEncoder:
        from schemas.formats.outputs.events import AvroEventEncoder, JsonEventEncoder

        if self.encoding == "avro-registry":
            return AvroEventEncoder(tuple(columns), self.registered.value)
        return JsonEventEncoder(tuple(columns), self.encoding)

    def schemas(
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]:
        from schemas.avro.output_schemas import envelope
        from schemas.formats.outputs.events import event_schema

        key = self.row_schema("Key", key_columns, topic)
        if self.encoding == "avro-registry":
            return {"key": key, "value": envelope(columns, topic)}
        return {"key": key, "value": event_schema(columns, self.encoding)}
