"""The format `upsert` of an output: what the row of a key is now, or that there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from schemas.formats.protocol import Images, KeyEncoder, OutputFormat, OutputRows, ValueEncoder
from schemas.table import Column


class UpsertOutput(OutputFormat):
    """A value is the row after the projection, and a null is a DELETE."""

    format: Annotated[
        Literal["upsert"],
        Field(description="the row of a key as it is now; a record without a value deletes it."),
    ] = "upsert"
    encoding: Annotated[
        Literal["json", "json-schema"],
        Field(
            description="`json`, objects in UTF-8, which is its default; or `json-schema`, the same in Kafka Connect's "
            "frame, with the schema in each record."
        ),
    ] = "json"

    @property
    def images(self) -> Images:
        return Images.AFTER_ONLY

    @property
    def may_be_null(self) -> bool:
        return True

    # Encoders need packages that commands such as `list` do without.

    def rows(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> OutputRows:
        from schemas.formats.outputs.upsert_json import JsonUpsertRows

        return JsonUpsertRows(columns, key_columns, self.encoding)

    def keys(self, key_columns: Sequence[Column]) -> KeyEncoder:
        from schemas.formats.outputs.json_records import JsonKeys

        return JsonKeys(tuple(key_columns), self.encoding)

    def values(self, columns: Sequence[Column]) -> ValueEncoder:
        from schemas.formats.outputs.upsert_json import JsonUpsertValues

        return JsonUpsertValues(tuple(columns), self.encoding)

    def schemas(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> dict[str, object]:
        from schemas.formats.outputs.json_records import row_schema

        return {
            "key": row_schema("Key", key_columns, self.encoding),
            "value": row_schema("Value", columns, self.encoding),
        }
