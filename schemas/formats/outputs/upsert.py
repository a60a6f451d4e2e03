"""The format `upsert` of an output: what the row of a key is now, or that there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from schemas.formats.outputs.encoded import KeyedOutput, RowOutput
from schemas.formats.protocol import Half, Images
from schemas.table import Column


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
