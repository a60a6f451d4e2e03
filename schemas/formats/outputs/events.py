"""Change events of Debezium as outputs have them: the encoders, the text around an event's rows, and its schema.

Of what stands around the rows only the job's name, the barrier and the part differ, and the first two are few: their
texts are written once for each interval, and taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.arrays import Indices, encoded_by_op, take
from schemas.avro.columnar import NULL, PRESENT, Part, encode_records
from schemas.avro.output_schemas import SOURCE
from schemas.avro.registered import frame
from schemas.formats.protocol import Origins
from schemas.json.columnar import Encoding, joined, object_pieces, text
from schemas.json.frames import (
    connect_field,
    connect_row,
    connect_struct,
    framed,
    json_object,
    json_row,
    or_null,
)
from schemas.json.pieces import Piece
from schemas.records import Barrier, Op
from schemas.table import Column

CONNECTOR = "arrangement-backfill"
READ = "r"
"""A row of the snapshot read."""
LETTERS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d"}
OPS = {READ: Op.INSERT} | {letter: op for op, letter in LETTERS.items()}


@cache
def own_version() -> str:
    """The version of this package, which events name as their writer."""
    return version("arrangement-backfill")


def source(job: str, table: str, letter: str, barrier: Barrier, written_by: str) -> str:
    """The text between the row after and the number of the part."""
    snapshot = "true" if letter == READ else "false"
    return (
        f',"source":{{"version":{text(written_by)},"connector":"{CONNECTOR}","name":{text(job)}'
        f',"ts_ms":{barrier.injected_at_ms},"snapshot":"{snapshot}","db":"","table":{text(table)}'
        f',"epoch":"{barrier.curr}","vnode":'
    )


def tail(letter: str, barrier: Barrier) -> str:
    """The text behind the number of the part."""
    return f'}},"op":"{letter}","ts_ms":{barrier.injected_at_ms}}}'


@cache
def event_frame(columns: tuple[Column, ...], encoding: Encoding) -> tuple[bytes, bytes]:
    """The constant bytes before an envelope and behind it."""
    return framed(_connect_event(columns)) if encoding == "json-schema" else (b"", b"")


def event_schema(columns: Sequence[Column], encoding: Encoding) -> dict[str, Any]:
    """The schema of an envelope, for readers."""
    if encoding == "json-schema":
        return _connect_event(columns)
    row, string, integer = or_null(json_row(columns)), {"type": "string"}, {"type": "integer"}
    source = {name: integer if kind != "string" else string for name, kind in SOURCE.items()}
    fields = {
        "before": row,
        "after": row,
        "source": json_object(source),
        "op": {"enum": list(OPS)},
        "ts_ms": integer,
    }
    return json_object(fields)


_CONNECT_TYPES = {"string": "string", "long": "int64", "int": "int32"}


def _connect_event(columns: Sequence[Column]) -> dict[str, Any]:
    row = connect_row("Value", columns, optional=True)
    source = connect_struct(
        "Source", [connect_field(name, {"type": _CONNECT_TYPES[kind]}) for name, kind in SOURCE.items()]
    )
    fields = [
        *({**row, "field": "before"}, {**row, "field": "after"}, {**source, "field": "source"}),
        connect_field("op", {"type": "string"}),
        connect_field("ts_ms", {"type": "int64"}, optional=True),
    ]
    return connect_struct("Envelope", fields)


def source_bytes(job: str, table: str, letter: str, barrier: Barrier, written_by: str) -> bytes:
    """The bytes between the row after and the number of the part."""
    snapshot = "true" if letter == READ else "false"
    first, rest = (written_by, CONNECTOR, job), (snapshot, "", table, str(barrier.curr))
    return b"".join([*map(_text, first), _number(barrier.injected_at_ms), *map(_text, rest)])


def tail_bytes(letter: str, barrier: Barrier) -> bytes:
    """The bytes behind the number of the part."""
    return _text(letter) + PRESENT + _number(barrier.injected_at_ms)


def _number(value: int) -> bytes:
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _text(value: str) -> bytes:
    data = value.encode()
    return _number(len(data)) + data


_Half = Sequence[pa.Array]


class _EventEncoder(ABC):
    """Encodes envelopes. Those of one op have the same images, so each op is encoded by itself."""

    __slots__ = ()

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        return self._events(READ, None, arrays, origins)

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        def of_op(op: Op, rows: Indices | None) -> pa.BinaryArray:
            old = None if op is Op.INSERT else take(before, rows)
            new = None if op is Op.DELETE else take(after, rows)
            return self._events(LETTERS[op], old, new, origins.of(rows))

        return encoded_by_op(ops, of_op)

    @abstractmethod
    def _events(
        self, letter: str, before: _Half | None, after: _Half | None, origins: Origins
    ) -> pa.BinaryArray:
        """Events with the op `letter`; None for an image that they lack."""


@dataclass(frozen=True, slots=True)
class JsonEventEncoder(_EventEncoder):
    """Events in JSON."""

    columns: tuple[Column, ...]
    encoding: Encoding

    def _events(
        self, letter: str, before: _Half | None, after: _Half | None, origins: Origins
    ) -> pa.BinaryArray:
        length = len(origins)
        begin, end = event_frame(self.columns, self.encoding)
        rows = [*self._row(b'{"before":', before, length), *self._row(b',"after":', after, length)]
        sources = [source(*each).encode() for each in _sources(letter, origins)]
        tails = [tail(letter, barrier).encode() for barrier in origins.barriers]
        origin = [_taken(sources, origins), _numbers(origins.parts), _taken(tails, origins)]
        return joined(length, [begin, *rows, *origin, end])

    def _row(self, name: bytes, arrays: _Half | None, length: int) -> list[Piece]:
        if arrays is None:
            return [name, b"null"]
        return [name, *object_pieces(self.columns, arrays, self.encoding, length)]


@dataclass(frozen=True, slots=True)
class AvroEventEncoder(_EventEncoder):
    """Events in Avro, with the id of a schema in front."""

    columns: tuple[Column, ...]
    schema_id: int

    def _events(
        self, letter: str, before: _Half | None, after: _Half | None, origins: Origins
    ) -> pa.BinaryArray:
        sources = [source_bytes(*each) for each in _sources(letter, origins)]
        tails = [tail_bytes(letter, barrier) for barrier in origins.barriers]
        return encode_records(
            len(origins),
            frame(self.schema_id),
            *self._row(before),
            *self._row(after),
            _taken(sources, origins),
            origins.parts,
            _taken(tails, origins),
        )

    def _row(self, arrays: _Half | None) -> list[Part]:
        return [NULL] if arrays is None else [PRESENT, (self.columns, arrays)]


def _sources(letter: str, origins: Origins) -> list[tuple[str, str, str, Barrier, str]]:
    """The arguments of `source`, for each barrier."""
    by = own_version()
    return [(origins.job, origins.table, letter, barrier, by) for barrier in origins.barriers]


def _taken(texts: list[bytes], origins: Origins) -> bytes | pa.BinaryArray:
    """The text of each row's interval; a constant if there is only one interval."""
    places = origins.intervals
    first = int(places[0]) if len(places) else 0
    if not len(places) or (places == first).all():
        return texts[first] if texts else b""
    return pa.array(texts, pa.binary()).take(pa.array(places))


def _numbers(numbers: npt.NDArray[np.int32]) -> Piece:
    if len(numbers) and (numbers == numbers[0]).all():
        return str(numbers[0]).encode()
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())
