"""The format `debezium` of an output: change events as Debezium's connectors write them, with the whole row before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from schemas.formats.debezium import key_misfit
from schemas.formats.protocol import KeyEncoder, OutputFormat, OutputRows, ValueEncoder
from schemas.table import Column, TableSchema


class DebeziumOutput(OutputFormat):
    """Events `r` for rows of the snapshot read and `c`, `u` and `d` for changes, each with its source."""

    format: Annotated[
        Literal["debezium"],
        Field(description="change events as a Debezium connector writes them, with the whole row before."),
    ] = "debezium"
    encoding: Annotated[
        Literal["json", "json-schema"],
        Field(
            description="`json`, objects in UTF-8, which is its default; or `json-schema`, the same in Kafka Connect's "
            "frame, with the schema in each record."
        ),
    ] = "json"
    tombstones: Annotated[
        bool, Field(description="whether a record without a value follows each delete, for compaction.")
    ] = True

    @property
    def may_be_null(self) -> bool:
        return self.tombstones

    @property
    def tombstone_follows(self) -> bool:
        return self.tombstones

    def misfit(self, table: TableSchema) -> str | None:
        return key_misfit(table)

    # Encoders need packages that commands such as `list` do without.

    def rows(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> OutputRows:
        from schemas.formats.outputs.debezium_json import JsonEventRows

        return JsonEventRows(columns, key_columns, self.encoding, tombstones=self.tombstones)

    def keys(self, key_columns: Sequence[Column]) -> KeyEncoder:
        from schemas.formats.outputs.json_records import JsonKeys

        return JsonKeys(tuple(key_columns), self.encoding)

    def values(self, columns: Sequence[Column]) -> ValueEncoder:
        from schemas.formats.outputs.debezium_columns import JsonEvents

        return JsonEvents(tuple(columns), self.encoding)

    def schemas(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> dict[str, object]:
        from schemas.formats.outputs.envelope import event_schema
        from schemas.formats.outputs.json_records import row_schema

        return {
            "key": row_schema("Key", key_columns, self.encoding),
            "value": event_schema(columns, self.encoding),
        }
