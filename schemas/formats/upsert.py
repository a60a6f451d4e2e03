"""The format `upsert`: each record says what the row of its key is now (docs/formats.md#upsert)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from schemas.avro.registered import WriterSchema
from schemas.formats.protocol import ColumnReader, Framed, Images, KeyReader, Rows
from schemas.formats.with_registry import JsonOrAvro, RegistryFormat
from schemas.table import Column, TableSchema

if TYPE_CHECKING:
    from schemas.formats.by_columns.rows import RowReader

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
        from schemas.formats.by_columns.rows import KeyedRows
        from schemas.formats.by_columns.upserts import has_keys

        if not has_keys(columns, key_columns):
            return None
        return KeyedRows(
            tuple(columns), tuple(key_columns), self.key_reader(key_columns), self._row_reader(tuple(columns))
        )

    def _row_reader(self, columns: tuple[Column, ...]) -> RowReader:
        if self.encoding == "json":
            from schemas.formats.by_columns.json_rows import read_rows

            return partial(read_rows, columns)
        from schemas.formats.by_columns.keys import RegisteredRows
        from schemas.formats.upsert_avro import projects

        return RegisteredRows(self.schemas_by_id, projects(self.key, columns, columns)["value"], columns)

    def key_reader(self, key_columns: Sequence[Column]) -> KeyReader:
        from schemas.formats.by_columns.keys import ObjectKeys, RegisteredKeys, ValueKeys

        if self.framed.key:
            from schemas.formats.upsert_avro import projects

            project = projects(self.key, key_columns, key_columns)["key"]
            return RegisteredKeys(self.schemas_by_id, project, key_columns)
        if self.key == "record":
            return ObjectKeys(tuple(key_columns))
        return ValueKeys(key_columns[0], plain=self.key == "text")
