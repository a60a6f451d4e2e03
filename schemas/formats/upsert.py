"""The format `upsert`: each record says what the row of its key is now (docs/formats.md#upsert)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from schemas.avro.registered import WriterSchema
from schemas.formats.protocol import ColumnReader, Framed, Images, Rows
from schemas.formats.with_registry import JsonOrAvro, RegistryFormat
from schemas.table import Column, TableSchema

KeyForm = Literal["record", "json", "text", "avro"]


class UpsertFormat(RegistryFormat):
    """An upstream's only: a value is the row of its key, and a null or empty one deletes it."""

    format: Annotated[Literal["upsert"], Field(description="The row of a key, or null.")] = "upsert"
    encoding: JsonOrAvro = "json"
    key: Annotated[
        KeyForm,
        Field(
            description="the record's key, as `record`, an object (in Avro a record) of the key columns; or the one "
            "key column, as `json`, its JSON value, as `text`, the same without quotes, or as `avro`, its value in "
            "Avro by a schema whose id stands in front."
        ),
    ] = "record"

    @property
    def images(self) -> Images:
        return Images.AFTER_ONLY

    @property
    def may_be_null(self) -> bool:
        return True

    @property
    def framed(self) -> Framed:
        if self.encoding == "json":
            return Framed()
        return Framed(key=self.key in ("record", "avro"), value=True)

    def misfit_of_columns(self, table: TableSchema) -> str | None:
        if self.key == "avro" and self.encoding == "json":
            return "key is 'avro', which is for encoding 'avro-registry'"
        if self.key != "record" and len(table.primary_key) > 1:
            return f"key is {self.key!r}, which is for a primary key of one column"
        return None

    def misfit_of(
        self, half: Literal["key", "value"], schema: WriterSchema, table: TableSchema
    ) -> str | None:
        from schemas.avro.projection import misfit
        from schemas.formats.upsert_avro import projects

        return misfit(schema, projects(self.key, table.columns, table.key_columns)[half])

    # Readers need packages that commands such as `list` do without.

    def rows(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> Rows:
        if self.encoding == "avro-registry":
            from schemas.formats.upsert_avro import AvroUpserts

            return AvroUpserts(columns, key_columns, self.key, self.schemas_by_id)
        from schemas.formats.upsert_json import JsonUpserts

        return JsonUpserts(columns, key_columns, self.key)

    def column_reader(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> ColumnReader | None:
        if self.encoding == "avro-registry":
            from schemas.formats.by_columns.registered_upserts import RegisteredUpsertColumns

            return RegisteredUpsertColumns.of(columns, key_columns, self.key, self.schemas_by_id)
        if self.key != "record":
            return None
        from schemas.formats.by_columns.upserts import UpsertColumns

        return UpsertColumns.of(columns, key_columns, may_be_spaced=True)
