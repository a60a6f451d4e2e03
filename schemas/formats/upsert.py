"""The format `upsert`: each record says what the row of its key is now (docs/formats.md#upsert)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from schemas.avro.registered import WriterSchema
from schemas.formats.protocol import ColumnReader, Framed, Images, KeyReader, Rows
from schemas.formats.with_registry import JsonOrAvro, RegistryFormat
from schemas.kinds.columns import in_records
from schemas.table import Column, TableSchema
from schemas.types import ColumnType, TypeName

if TYPE_CHECKING:
    from schemas.formats.by_columns.rows import RowReader

DELETED_FIELD = "__deleted"
"""Of Debezium's transformation that makes rows of events, where deletes are rows, too."""
_TEXT = ColumnType(TypeName.STRING)
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

    deleted_field: Annotated[
        str | None,
        Field(
            description="the field of a value that is true, or the text `true`, where it deletes the row of its key, "
            "as Debezium's flattening writes it; `null`: there is none. Where it is a column as well, it has to be "
            "given here."
        ),
    ] = DELETED_FIELD

    def deleted_field_beside(self, columns: Sequence[Column]) -> str | None:
        """The field that says that a row is deleted; None where that is a column, but for one that was chosen."""
        is_column = any(column.in_records.name == self.deleted_field for column in columns)
        return None if is_column and "deleted_field" not in self.model_fields_set else self.deleted_field

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

        named = map(in_records, (table.columns, table.key_columns))
        deleted_field = self.deleted_field_beside(table.columns)
        return misfit(schema, projects(self.key, *named, self.sub_micros, deleted_field)[half])

    # Readers need packages that commands such as `list` do without.

    def rows(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> Rows:
        deleted_field = self.deleted_field_beside(columns)
        columns, key_columns = in_records(columns), in_records(key_columns)
        if self.encoding == "avro-registry":
            from schemas.formats.upsert_avro import AvroUpserts

            return AvroUpserts(
                columns, key_columns, self.key, self.schemas_by_id, self.sub_micros, deleted_field
            )
        from schemas.formats.upsert_json import JsonUpserts

        return JsonUpserts(columns, key_columns, self.key, self.sub_micros, deleted_field)

    def column_reader(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> ColumnReader | None:
        from schemas.formats.by_columns.renamed import RenamedColumns
        from schemas.formats.by_columns.rows import KeyedRows
        from schemas.formats.by_columns.upserts import has_keys

        if not has_keys(columns, key_columns):
            return None
        deleted_field = self.deleted_field_beside(columns)
        own, keys = in_records(columns), in_records(key_columns)
        read = self._row_reader(own, deleted_field)
        rows = KeyedRows(own, keys, self.key_reader(key_columns), read, deleted_field)
        return RenamedColumns.of(rows, columns)

    def _row_reader(self, columns: tuple[Column, ...], deleted_field: str | None) -> RowReader:
        """The field that says that a row is deleted comes last, where it is no column."""
        is_beside = deleted_field is not None and all(each.name != deleted_field for each in columns)
        read = (*columns, Column(str(deleted_field), _TEXT, nullable=True)) if is_beside else columns
        if self.encoding == "json":
            from schemas.formats.by_columns.json_rows import read_rows

            return partial(read_rows, read)
        from schemas.formats.by_columns.keys import RegisteredRows
        from schemas.formats.upsert_avro import projects

        project = projects(self.key, columns, columns, self.sub_micros, deleted_field)["value"]
        return RegisteredRows(self.schemas_by_id, project, read)

    def key_reader(self, key_columns: Sequence[Column]) -> KeyReader:
        from schemas.formats.by_columns.keys import ObjectKeys, RegisteredKeys, ValueKeys

        key_columns = in_records(key_columns)
        if self.framed.key:
            from schemas.formats.upsert_avro import projects

            project = projects(self.key, key_columns, key_columns, self.sub_micros)["key"]
            return RegisteredKeys(self.schemas_by_id, project, key_columns)
        if self.key == "record":
            return ObjectKeys(key_columns)
        return ValueKeys(key_columns[0], plain=self.key == "text")
