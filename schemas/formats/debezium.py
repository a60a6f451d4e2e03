"""The format `debezium`: change events of Debezium's connectors (docs/formats.md#debezium)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from schemas.formats.protocol import Format, Images
from schemas.json.debezium_values import DecimalMode, TimeMode
from schemas.table import Column, TableSchema
from schemas.types import TypeName

if TYPE_CHECKING:
    from schemas.formats.debezium_json import DebeziumRows

_FRAME = ("schema", "payload")
_TIMES = {TypeName.DATE, TypeName.TIMESTAMP}


class DebeziumFormat(Format):
    """Events with a row after, and deletes. Of an upstream only."""

    format: Annotated[Literal["debezium"], Field(description="Change events of a Debezium connector.")] = (
        "debezium"
    )
    encoding: Annotated[
        Literal["json"], Field(description="`json`, with or without the schema in each record.")
    ] = "json"
    before: Annotated[
        Literal["ignored"],
        Field(
            description="`ignored`: the row before a change comes from the replica, whatever the record says."
        ),
    ] = "ignored"
    time: Annotated[
        TimeMode | None,
        Field(
            description="the connector's `time.precision.mode` (`connect`, `microseconds`, `nanoseconds`, "
            "`isostring`), or `adaptive` where each record has its schema; for columns of type date and timestamp."
        ),
    ] = None
    decimal: Annotated[
        DecimalMode | None,
        Field(
            description="the connector's `decimal.handling.mode`, `precise` or `string`; for columns of type decimal."
        ),
    ] = None

    @property
    def images(self) -> Images:
        return Images.AFTER_ONLY

    @property
    def may_be_null(self) -> bool:
        return True

    @property
    def may_be_unchanged(self) -> bool:
        return True

    @property
    def comes_again(self) -> bool:
        return True

    def misfit(self, table: TableSchema) -> str | None:
        types = {column.type.name for column in table.columns}
        if types & _TIMES and self.time is None:
            return "time is missing, which is for columns of type date and timestamp"
        if TypeName.DECIMAL in types and self.decimal is None:
            return "decimal is missing, which is for columns of type decimal"
        return key_misfit(table)

    def rows(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> DebeziumRows:
        from schemas.formats.debezium_json import DebeziumRows

        return DebeziumRows(columns, key_columns, self.time, self.decimal)


def key_misfit(table: TableSchema) -> str | None:
    """Why keys of this table could be taken for a frame."""
    reserved = [name for name in table.primary_key if name in _FRAME]
    return f"a key column is named {reserved[0]}, as a part of a record" if reserved else None
