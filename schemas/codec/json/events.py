"""Debezium's change events in JSON: structs of `schemas.codec.debezium.event_type`.

A value is an envelope, `{"op": ..., "after": ..., "source": ...}`, or has one as the `payload` of a frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from schemas.codec.debezium import MESSAGE, event_type, images
from schemas.codec.json.cells import LONG
from schemas.codec.json.reader import JsonHalf, JsonReader, RowShape, Schemas, Shape, Slow, can_be_typed
from schemas.codec.json.rows import ColumnForms
from schemas.codec.json.text import FRAMED, Frames, fields_in, read_object, unframed
from schemas.codec.logs import NUMBERS, TEXTS, fields_of_others
from schemas.codec.results import Flags, null_where, row_type
from schemas.json.debezium_values import DebeziumValues
from schemas.json.tokens import NO_SCHEMAS, Fields, JsonError, Kind, Token
from schemas.kinds.fills import has_utf8
from schemas.table import Column

FORM = "a change event in JSON"
_LONGS = range(-(2**63), 2**63)
_SNAPSHOT = {True: "true", False: "false"}


class JsonEvents(JsonReader):
    """Events with rows of columns, under the connector's settings. `whole`: the row before is read, too.

    `names` are those that a row's fields may have; None: any.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        settings: DebeziumValues,
        *,
        whole: bool,
        transactions: bool,
        names: frozenset[str] | None = None,
    ) -> None:
        self._columns = ColumnForms(columns, settings.sub_micros, settings, names)
        self._images, self._transactions = images(whole=whole), transactions
        kind = event_type(columns, whole=whole, transactions=transactions)
        super().__init__(kind, JsonHalf("a value", FORM), Frames[Shape]("after"))

    def typed(self, schemas: Schemas) -> Shape | None:
        if not can_be_typed(self._columns.names):
            return None
        fields = self._columns.fields(schemas)
        row = RowShape(row_type(self._columns.columns), fields, unread=self._columns.unread())
        return EventShape(self.kind, row, self._images, transactions=self._transactions)

    def slowly(self, text: str) -> Slow:
        fields: Fields | None = read_object(text)
        schemas: Schemas = NO_SCHEMAS
        if text.startswith(FRAMED):
            fields, schemas = unframed(fields or [], "after")
        if fields is None:
            return Slow(None)
        envelope = _without_nulls(fields)
        op = _op(envelope.get("op"))
        has_time = "ts_ms" in envelope
        event: dict[str, Any] = {"op": op, "has_time": has_time}
        if op == MESSAGE or (op is None and has_time and not {"after", "source"} & envelope.keys()):
            return Slow(event)
        source = _without_nulls(fields_in(envelope["source"])) if "source" in envelope else {}
        event["source"] = self._source(source) if "source" in envelope else None
        try:
            for name in self._images:
                row = envelope.get(name)
                event[name] = None if row is None else self._columns.row(fields_in(row), schemas)
        except JsonError as reason:
            rows = {
                name: {each.name: None for each in self._columns.columns} if name in envelope else None
                for name in self._images
            }
            return Slow({**event, **rows}, late=reason)
        return Slow(event)

    def _source(self, source: Mapping[str, Token]) -> dict[str, Any]:
        """The fields that positions are made of; None for those of another type, as other connectors have them."""
        found: dict[str, Any] = {name: _text(source.get(name), name) for name in TEXTS}
        found |= {name: _long(source.get(name)) for name in NUMBERS}
        if self._transactions:
            found["txId"] = _long(source.get("txId"))
            if found["txId"] is None and "txId" in source:
                raise JsonError("a source whose txId is no number")
        return found


class EventShape:
    """Events, typed: what is in a source is of the types that the connectors whose positions are compared write."""

    def __init__(
        self, kind: pa.StructType, row: RowShape, names: Sequence[str], *, transactions: bool
    ) -> None:
        self._kind, self._row = kind, row
        self._images = [attrgetter(name) for name in names]
        self._of_source = [attrgetter(each.name) for each in kind.field("source").type]
        numbers = (*NUMBERS, *(("txId",) if transactions else ()))
        source = [(name, (bool | str | None) if name == "snapshot" else str | None, None) for name in TEXTS]
        of_source = msgspec.defstruct(
            "Source", [*source, *((name, LONG | None, None) for name in numbers)], gc=False
        )
        self.type = msgspec.defstruct(
            "Event",
            [
                ("op", str | None, None),
                ("ts_ms", LONG | None, None),
                ("source", of_source | None, None),
                *((name, row.type | None, None) for name in names),
            ],
            gc=False,
        )
        self.decode = msgspec.json.Decoder(self.type).decode
        self._no_source, self._no_row = of_source(), row.type()

    def structs(self, decoded: Sequence[Any]) -> tuple[pa.StructArray, Flags]:
        unusual = np.zeros(len(decoded), np.bool_)
        times = [each.ts_ms is not None for each in decoded]
        arrays = [pa.array([each.op for each in decoded], pa.string()), pa.array(times, pa.bool_())]
        arrays.append(self._sources([each.source for each in decoded]))
        for get in self._images:
            found = list(map(get, decoded))
            structs, fallback = self._row.structs([self._no_row if each is None else each for each in found])
            unusual |= fallback
            arrays.append(_where_found(structs, found))
        return pa.StructArray.from_arrays(arrays, fields=list(self._kind)), unusual

    def _sources(self, sources: Sequence[Any]) -> pa.StructArray:
        kind = self._kind.field("source").type
        given: list[Any] = [self._no_source if each is None else each for each in sources]
        unread = fields_of_others({each.connector for each in given})
        arrays = []
        for each, get in zip(kind, self._of_source, strict=True):
            if each.name in unread:
                arrays.append(pa.nulls(len(given), each.type))
                continue
            values: list[Any] = list(map(get, given))
            if each.name == "snapshot":
                values = [_SNAPSHOT.get(value, value) for value in values]
            arrays.append(pa.array(values, each.type))
        return _where_found(pa.StructArray.from_arrays(arrays, fields=list(kind)), sources)


def _where_found(structs: pa.StructArray, found: Sequence[Any]) -> pa.StructArray:
    return null_where(structs, np.array([each is None for each in found], np.bool_))


def _without_nulls(fields: Fields) -> dict[str, Token]:
    return {name: token for name, token in dict(fields).items() if token.kind is not Kind.NULL}


def _text(token: Token | None, name: str) -> str | None:
    is_text = token is not None and (
        token.kind is Kind.TEXT or (token.kind is Kind.BOOLEAN and name == "snapshot")
    )
    return token.text if token is not None and is_text and has_utf8(token.text) else None


def _op(token: Token | None) -> str | None:
    """The op; a text that has no UTF-8 is an unknown one, in ASCII."""
    return None if token is None else token.text.encode("utf-8", "backslashreplace").decode()


def _long(token: Token | None) -> int | None:
    if token is None or token.kind is not Kind.INTEGER:
        return None
    number = int(token.text)
    return number if number in _LONGS else None
