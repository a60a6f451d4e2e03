"""The format `upsert`: each record says what the row of its key is now (docs/formats.md#upsert)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from schemas.formats.protocol import Framed, Half, Images
from schemas.formats.with_registry import JsonOrAvro, RegistryFormat
from schemas.kinds.columns import in_records
from schemas.table import Column, TableSchema

if TYPE_CHECKING:
    from schemas.avro.projection import Project
    from schemas.codec.results import Decoder, StructReader

DELETED_FIELD = "__deleted"
"""A field of Debezium's transformation that makes rows of events, where deletes are rows, too."""
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
        is_column = any(self.deleted_field in column.names_in_records for column in columns)
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

    def incompatibility_of_columns(self, table: TableSchema) -> str | None:
        if self.key == "avro" and self.encoding == "json":
            return "key is 'avro', which is for encoding 'avro-registry'"
        if self.key != "record" and len(table.primary_key) > 1:
            return f"key is {self.key!r}, which is for a primary key of one column"
        return None

    # Decoders need packages that commands such as `list` do without.

    def projects(
        self, columns: Sequence[Column], key_columns: Sequence[Column], names: frozenset[str] | None = None
    ) -> Mapping[Half, Project]:
        from schemas.codec.avro_reader import row_projects

        return row_projects(self, columns, key_columns, names)

    def decoder(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> Decoder:
        from schemas.codec.envelopes import UpsertDecoder

        keys, rows = self._keys(in_records(key_columns)), self._rows(columns)
        return UpsertDecoder(tuple(columns), tuple(key_columns), keys, rows, empty_keys=self.key == "text")

    def _rows(self, columns: Sequence[Column]) -> StructReader:
        deleted_field, named = self.deleted_field_beside(columns), in_records(columns)
        names = self.names_of(columns, deleted_field)
        if self.encoding == "json":
            from schemas.codec.json.rows import JsonRows

            return JsonRows(named, self.sub_micros, deleted_field, names=names)
        from schemas.codec.avro_reader import AvroRows

        project = self.projects(named, named, names)["value"]
        return AvroRows(self.schemas_by_id, project, named, deleted_field)

    def _keys(self, key_columns: tuple[Column, ...]) -> StructReader:
        if self.framed.key:
            from schemas.codec.avro_reader import AvroKeys

            project = self.projects(key_columns, key_columns)["key"]
            return AvroKeys(self.schemas_by_id, project, key_columns)
        from schemas.codec.json.rows import JsonKeys, JsonValueKeys

        if self.key == "record":
            return JsonKeys(key_columns, self.sub_micros)
        return JsonValueKeys(key_columns[0], self.sub_micros, plain=self.key == "text")
