"""The format `debezium`: change events of Debezium's connectors (docs/debezium.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr

from schemas.avro.registered import WriterSchema
from schemas.formats.protocol import ColumnReader, Framed, Images, KeyReader, Rows
from schemas.formats.with_registry import RegistryFormat
from schemas.json.debezium_values import DecimalMode, TimeMode
from schemas.table import Column, TableSchema
from schemas.types import TypeName

_FRAME = ("schema", "payload")
_TIMES = {TypeName.DATE, TypeName.TIMESTAMP}


class DebeziumFormat(RegistryFormat):
    """An upstream's only: events with a row after, and deletes."""

    format: Annotated[Literal["debezium"], Field(description="Change events of a Debezium connector.")] = (
        "debezium"
    )
    encoding: Annotated[
        Literal["json", "avro-registry"],
        Field(
            description="`json`, with or without the schema in each record, which is its default; or "
            "`avro-registry`, Avro by a schema whose id stands in front."
        ),
    ] = "json"
    before: Annotated[
        Literal["ignored", "full"],
        Field(
            description="`ignored`: the row before a change comes from the replica, whatever the record says; or "
            "`full`: it is that of the record, see [events](debezium.md#whole-rows-before)."
        ),
    ] = "ignored"
    time: Annotated[
        TimeMode | None,
        Field(
            description="the connector's `time.precision.mode` (`connect`, `microseconds`, `nanoseconds`, "
            "`isostring`), or `adaptive` where each record has its schema; in JSON, for columns of type date and "
            "timestamp."
        ),
    ] = None
    decimal: Annotated[
        DecimalMode | None,
        Field(
            description="the connector's `decimal.handling.mode`, `precise` or `string`; in JSON, for columns of type "
            "decimal."
        ),
    ] = None

    on_log_reset: Annotated[
        Literal["stop", "accept"],
        Field(
            description="`stop`: where changes come with lower positions and later times, as from a database that was "
            "restored, the service stops (LOG_WENT_BACK); or `accept`: they are taken, see "
            "[redelivered records](debezium.md#redelivered-records)."
        ),
    ] = "stop"

    @property
    def is_whole(self) -> bool:
        """Whether events come with the row before them."""
        return self.before == "full"

    @property
    def images(self) -> Images:
        return Images.FULL if self.is_whole else Images.AFTER_ONLY

    @property
    def may_be_null(self) -> bool:
        return True

    @property
    def may_be_unchanged(self) -> bool:
        return not self.is_whole

    @property
    def comes_again(self) -> bool:
        return True

    @property
    def accepts_log_resets(self) -> bool:
        return self.on_log_reset == "accept"

    _asks_transactions: bool = PrivateAttr(default=False)

    @property
    def reads_transactions(self) -> bool:
        return self._asks_transactions

    def with_transactions(self) -> Self:
        """The same format, which also reads the transaction of each change; for connectors of PostgreSQL.

        It is no part of the declaration. Raises: ValueError where events come with the row before.
        """
        if self.is_whole:
            raise ValueError("transactions are not read where events come with the row before")
        copy = self.model_copy()
        copy._asks_transactions = True
        return copy

    @property
    def framed(self) -> Framed:
        return Framed() if self.encoding == "json" else Framed(key=True, value=True)

    def misfit_of_columns(self, table: TableSchema) -> str | None:
        if self.encoding != "json":
            given = [name for name in ("time", "decimal") if getattr(self, name) is not None]
            return f"{given[0]} is for encoding 'json': in Avro the schema says it" if given else None
        types = {column.type.name for column in table.columns}
        if types & _TIMES and self.time is None:
            return "time is missing, which is for columns of type date and timestamp"
        if TypeName.DECIMAL in types and self.decimal is None:
            return "decimal is missing, which is for columns of type decimal"
        return key_misfit(table)

    def misfit_of(
        self, half: Literal["key", "value"], schema: WriterSchema, table: TableSchema
    ) -> str | None:
        from schemas.avro.projection import misfit
        from schemas.formats.events.debezium_avro import projects

        read = projects(
            table.columns, table.key_columns, whole=self.is_whole, transactions=self._asks_transactions
        )
        return misfit(schema, read[half])

    def rows(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> Rows:
        if self.encoding == "avro-registry":
            from schemas.formats.events.debezium_avro import AvroEvents

            return AvroEvents(
                columns,
                key_columns,
                self.schemas_by_id,
                whole=self.is_whole,
                transactions=self._asks_transactions,
            )
        from schemas.formats.events.debezium_json import DebeziumRows

        return DebeziumRows(
            columns,
            key_columns,
            self.time,
            self.decimal,
            whole=self.is_whole,
            transactions=self._asks_transactions,
        )

    def column_reader(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> ColumnReader | None:
        from schemas.formats.by_columns.upserts import has_keys

        if not has_keys(columns, key_columns):
            return None
        reader = self._json_reader if self.encoding == "json" else self._avro_reader
        return reader(tuple(columns), tuple(key_columns))

    def key_reader(self, key_columns: Sequence[Column]) -> KeyReader | None:
        if self.encoding == "json":
            return self._json_keys(tuple(key_columns))
        from schemas.formats.by_columns.keys import RegisteredKeys
        from schemas.formats.events.debezium_avro import projects

        project = projects(key_columns, key_columns, whole=False)["key"]
        return RegisteredKeys(self.schemas_by_id, project, key_columns)

    def _json_keys(self, key_columns: tuple[Column, ...]) -> KeyReader:
        from schemas.formats.by_columns.debezium_json import JsonKeys
        from schemas.formats.by_columns.framed import FramedKeys, Schemas
        from schemas.json.debezium_columns import DebeziumColumnValues

        def keys_of(schemas: Schemas | None) -> JsonKeys:
            return JsonKeys(key_columns, DebeziumColumnValues(self.time, self.decimal, schemas))

        plain = keys_of(None)
        return FramedKeys(keys_of, plain if plain.can_read else None)

    def _avro_reader(self, columns: tuple[Column, ...], key_columns: tuple[Column, ...]) -> ColumnReader:
        from schemas.formats.by_columns.debezium import DebeziumColumns
        from schemas.formats.by_columns.debezium_avro import RegisteredEvents

        whole, transactions = self.is_whole, self._asks_transactions
        events = RegisteredEvents(
            columns, key_columns, self.schemas_by_id, whole=whole, transactions=transactions
        )
        return DebeziumColumns(columns, key_columns, events, whole, transactions)

    def _json_reader(self, columns: tuple[Column, ...], key_columns: tuple[Column, ...]) -> ColumnReader:
        from schemas.formats.by_columns.debezium import DebeziumColumns
        from schemas.formats.by_columns.debezium_json import JsonEvents
        from schemas.formats.by_columns.framed import FramedColumns, Schemas
        from schemas.json.debezium_columns import DebeziumColumnValues

        whole, transactions = self.is_whole, self._asks_transactions

        def events_of(schemas: Schemas | None) -> JsonEvents:
            values = DebeziumColumnValues(self.time, self.decimal, schemas)
            return JsonEvents(columns, key_columns, values, whole, transactions)

        def reader_of(events: JsonEvents) -> DebeziumColumns:
            return DebeziumColumns(columns, key_columns, events, whole, transactions)

        plain = events_of(None)
        names = frozenset(column.name for column in key_columns)
        return FramedColumns(
            lambda schemas: reader_of(events_of(schemas)), reader_of(plain) if plain.can_read else None, names
        )


def key_misfit(table: TableSchema) -> str | None:
    """Why keys of this table could be mistaken for a frame; None if they can't."""
    reserved = [name for name in table.primary_key if name in _FRAME]
    return f"a key column is named {reserved[0]}, as a part of a record" if reserved else None
