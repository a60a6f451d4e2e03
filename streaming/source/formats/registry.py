"""The decoder of each kind of upstream format in `schemas.formats.registry`, found by the format's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.formats.append import AppendFormat
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Format
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema
from streaming.source.formats.append import AppendDecoder
from streaming.source.formats.change import ChangeDecoder
from streaming.source.formats.debezium import DebeziumDecoder
from streaming.source.formats.debezium_avro import AvroEventDecoder
from streaming.source.formats.protocol import Decoder
from streaming.source.formats.upsert import UpsertDecoder


def _event_decoder(format_: DebeziumFormat, table: TableSchema) -> Decoder:
    return (AvroEventDecoder if format_.framed else DebeziumDecoder)(format_, table)


DECODERS: dict[type[Format], Callable[[Any, TableSchema], Decoder]] = {
    ChangeFormat: ChangeDecoder,
    UpsertFormat: UpsertDecoder,
    DebeziumFormat: _event_decoder,
    AppendFormat: AppendDecoder,
}


def decoder_of(format_: Format, table: TableSchema) -> Decoder:
    """The decoder of an upstream in this format. Raises: KeyError for a kind that is registered without one."""
    return DECODERS[type(format_)](format_, table)
