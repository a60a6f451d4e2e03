"""The format `upsert`: each record says what the row of its key is now (docs/formats.md#upsert)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from schemas.formats.protocol import Format, Images
from schemas.table import Column, TableSchema

if TYPE_CHECKING:
    from schemas.formats.upsert_json import JsonUpserts

KeyForm = Literal["record", "json", "text"]


class UpsertFormat(Format):
    """A value is the row, and a null or empty one deletes it. Of an upstream only."""

    format: Annotated[Literal["upsert"], Field(description="The row of a key, or null.")] = "upsert"
    encoding: Annotated[
        Literal["json"], Field(description="`json`, an object in UTF-8, which is its default.")
    ] = "json"
    key: Annotated[
        KeyForm,
        Field(
            description="the record's key, as `record`, a JSON object of the key columns; or the one key column, as "
            "`json`, its JSON value, or as `text`, the same without quotes."
        ),
    ] = "record"

    @property
    def images(self) -> Images:
        return Images.AFTER_ONLY

    @property
    def tombstones(self) -> bool:
        return True

    def misfit(self, table: TableSchema) -> str | None:
        if self.key != "record" and len(table.primary_key) > 1:
            return f"key is {self.key!r}, which is for a primary key of one column"
        return None

    def rows(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> JsonUpserts:
        from schemas.formats.upsert_json import JsonUpserts

        return JsonUpserts(columns, key_columns, self.key)
