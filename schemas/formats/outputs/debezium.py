"""The format `debezium` of an output: change events as Debezium's connectors write them, with the whole row before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from schemas.formats.debezium import key_misfit
from schemas.formats.outputs.encoded import KeyedOutput
from schemas.formats.protocol import Half, ValueEncoder
from schemas.table import Column, TableSchema


class DebeziumOutput(KeyedOutput):
    """Events `r` for rows of the snapshot read and `c`, `u` and `d` for changes, each with its source."""

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
    def names_origin(self) -> bool:
        return True

    @property
    def tombstone_follows(self) -> bool:
        return self.tombstones

    def misfit_of_columns(self, table: TableSchema) -> str | None:
        return None if self.framed else key_misfit(table)

    def values(self, columns: Sequence[Column]) -> ValueEncoder:
        if self.encoding == "avro-registry":
            from schemas.formats.outputs.debezium_columns import AvroEventEncoder

            return AvroEventEncoder(tuple(columns), self.registered.value)
        from schemas.formats.outputs.debezium_columns import JsonEventEncoder

        return JsonEventEncoder(tuple(columns), self.encoding)

    def schemas(
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]:
        if self.encoding == "avro-registry":
            from schemas.avro.output_schemas import envelope, row_record

            return {"key": row_record("Key", key_columns, topic), "value": envelope(columns, topic)}
        from schemas.formats.outputs.envelope import event_schema
        from schemas.formats.outputs.json_records import row_schema

        return {
            "key": row_schema("Key", key_columns, self.encoding),
            "value": event_schema(columns, self.encoding),
        }
