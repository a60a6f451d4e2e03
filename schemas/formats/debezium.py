"""The format `debezium`: change events of Debezium's connectors (docs/debezium.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr

from schemas.errors import Code
from schemas.formats.protocol import Framed, Half, Images
from schemas.formats.with_registry import RegistryFormat
from schemas.json.debezium_values import DecimalMode, TimeMode
from schemas.json.placeholder import UNAVAILABLE, placeholder
from schemas.kinds.columns import in_records
from schemas.table import Column, TableSchema
from schemas.types import TypeName

if TYPE_CHECKING:
    from schemas.avro.projection import Project
    from schemas.codec.results import Decoder, StructReader

_FRAME = ("schema", "payload")
_TIMES = {TypeName.DATE, TypeName.TIMESTAMP}


def _known_placeholder(setting: str) -> str:
    placeholder(setting)  # ValueError
    return setting


class DebeziumFormat(RegistryFormat):
    """An upstream's only: events with a row after, and deletes."""

    comes_again: ClassVar[bool] = True
    row_field: ClassVar[str | None] = "after"
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

    unavailable: Annotated[
        str,
        AfterValidator(_known_placeholder),
        Field(
            description="the connector's `unavailable.value.placeholder`, as it is written there: what stands in place "
            "of a [large value that did not change](debezium.md#large-values-that-did-not-change)."
        ),
    ] = UNAVAILABLE

    on_log_reset: Annotated[
        Literal["stop", "accept"],
        Field(
            description="`stop`: where changes come with lower positions and later times, as from a database that was "
            "restored, the service stops (LOG_WENT_BACK); or `accept`: they are taken, see "
            "[redelivered records](debezium.md#redelivered-records)."
        ),
    ] = "stop"

    @property
    def column_keys(self) -> frozenset[str]:
        return super().column_keys | ({"time", "decimal"} if self.encoding == "json" else set())

    @property
    def is_whole(self) -> bool:
        """True if events contain the row before the change."""
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

    _asks_transactions: bool = PrivateAttr(default=False)

    @property
    def reads_transactions(self) -> bool:
        return self._asks_transactions

    def with_transactions(self) -> Self:
        """This format, which also reads the transaction of each change; for connectors of PostgreSQL.

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

    def incompatibility_of_columns(self, table: TableSchema) -> str | None:
        if self.encoding != "json":
            given = [name for name in ("time", "decimal") if getattr(self, name) is not None]
            return f"{given[0]} is for encoding 'json': in Avro the schema says it" if given else None
        for column in table.columns:
            if self.time is None and column.time is None and column.type.name in _TIMES:
                return f"time left out, which is for columns of type date and timestamp: {column.name}"
            has_unit = column.decimal is not None or column.unsigned is not None
            if self.decimal is None and not has_unit and column.type.name is TypeName.DECIMAL:
                return f"decimal left out, which is for columns of type decimal: {column.name}"
        return key_incompatibility(table)

    # Decoders need packages that commands such as `list` do without.

    def projects(
        self, columns: Sequence[Column], key_columns: Sequence[Column], names: frozenset[str] | None = None
    ) -> Mapping[Half, Project]:
        from schemas.codec.avro_reader import event_projects

        return event_projects(self, columns, key_columns, names)

    def decoder(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> Decoder:
        from schemas.codec.debezium import DebeziumDecoder

        keys, events = (
            self._json(columns, key_columns) if self.encoding == "json" else self._avro(columns, key_columns)
        )
        left_out = placeholder(self.unavailable)
        return DebeziumDecoder(
            tuple(columns),
            tuple(key_columns),
            keys,
            events,
            left_out.by_type(in_json=self.encoding == "json"),
            self.is_whole,
            self._asks_transactions,
            Code.JSON_MALFORMED if self.encoding == "json" else Code.CHANGE_MALFORMED,
        )

    def _json(
        self, columns: Sequence[Column], key_columns: Sequence[Column]
    ) -> tuple[StructReader, StructReader]:
        from schemas.codec.json.events import FORM, JsonEvents
        from schemas.codec.json.reader import JsonHalf
        from schemas.codec.json.rows import JsonKeys
        from schemas.json.debezium_values import DebeziumValues

        settings = DebeziumValues(self.time, self.decimal, self.sub_micros)
        keys = JsonKeys(in_records(key_columns), self.sub_micros, settings, JsonHalf("a key", FORM))
        whole, transactions = self.is_whole, self._asks_transactions
        names = self.names_of(columns)
        events = JsonEvents(
            in_records(columns), settings, whole=whole, transactions=transactions, names=names
        )
        return keys, events

    def _avro(
        self, columns: Sequence[Column], key_columns: Sequence[Column]
    ) -> tuple[StructReader, StructReader]:
        from schemas.codec.avro_reader import AvroEvents, AvroKeys

        names = self.names_of(columns)
        columns, key_columns = in_records(columns), in_records(key_columns)
        read = self.projects(columns, key_columns, names)
        events = AvroEvents(
            self.schemas_by_id, read["value"], columns, self.is_whole, self._asks_transactions
        )
        return AvroKeys(self.schemas_by_id, read["key"], key_columns), events


def key_incompatibility(table: TableSchema) -> str | None:
    """The reason why keys of this table could be mistaken for a frame; None if they can't."""
    reserved = [each.name for each in in_records(table.key_columns) if each.name in _FRAME]
    return f"a key column is named {reserved[0]}, as a part of a record" if reserved else None
