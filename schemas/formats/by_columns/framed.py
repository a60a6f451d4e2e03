"""Debezium's events with their schemas, as Kafka Connect's converter writes them by default, by whole columns.

The frame around a payload is the same in most records, and ten times as long. It is read once; the records of a batch
have to have the same one, whose bytes are compared, and what is left of them is read as events without a schema are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.events.frames import FRAMED, begin_of_payload
from schemas.formats.protocol import ColumnReader, KeyReader, ReadColumns
from schemas.json.parsing.field_schemas import FieldSchema
from schemas.records import OddRecordError, refuse

Schemas = Mapping[str, FieldSchema]


class _Frame(NamedTuple):
    """The bytes before a payload, and the fields' schemas in them."""

    begin: bytes
    schemas: Schemas


_NO_FRAME = _Frame(b"", {})


@dataclass
class FramedColumns:
    """See `formats.protocol.ColumnReader`. `reader_of` gives that of payloads whose columns have these schemas.

    `plain` reads records without a frame; None where settings alone do not say what their values mean.
    """

    reader_of: Callable[[Schemas], ColumnReader]
    plain: ColumnReader | None
    key_names: frozenset[str]
    _frames: _Frames = field(default_factory=lambda: _Frames({}))

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """Raises: OddRecordError."""
        of_keys = self._frames.of(keys, None)
        of_values = self._frames.of(values, "after") if values.null_count < len(values) else of_keys
        if _NO_FRAME == of_keys == of_values and self.plain is not None:
            return self.plain(keys, values)
        schemas = of_values.schemas
        refuse(any(_meaning(of_keys.schemas, name) != _meaning(schemas, name) for name in self.key_names))
        return self.reader_of(schemas)(_payloads(keys, of_keys), _payloads(values, of_values))


@dataclass
class FramedKeys:
    """See `formats.protocol.KeyReader`; `reader_of` and `plain` as in `FramedColumns`."""

    reader_of: Callable[[Schemas], KeyReader]
    plain: KeyReader | None
    _frames: _Frames = field(default_factory=lambda: _Frames({}))

    def __call__(self, keys: pa.BinaryArray) -> Sequence[pa.Array]:
        """Raises: OddRecordError."""
        frame = self._frames.of(keys, None)
        if frame == _NO_FRAME and self.plain is not None:
            return self.plain(keys)
        return self.reader_of(frame.schemas)(_payloads(keys, frame))


class _Frames(NamedTuple):
    """The frame that was seen last of each half."""

    known: dict[str | None, _Frame]

    def of(self, texts: pa.BinaryArray, half: str | None) -> _Frame:
        """The frame of the first text. Raises: OddRecordError."""
        place = texts.is_valid().index(True).as_py()
        first = texts[place].as_py() if place >= 0 else b""
        if not first.startswith(FRAMED.encode()):
            return _NO_FRAME
        known = self.known.get(half)
        if known is None or not first.startswith(known.begin):
            found = begin_of_payload(first, half)
            if found is None:
                raise OddRecordError
            self.known[half] = known = _Frame(*found)
        return known


def _meaning(schemas: Schemas, name: str) -> FieldSchema:
    return schemas.get(name, FieldSchema())


def _payloads(texts: pa.BinaryArray, frame: _Frame) -> pa.BinaryArray:
    """The texts without their frame, which each has. Raises: OddRecordError."""
    if not frame.begin:
        return texts
    begin = frame.begin.decode()  # what was read as JSON is UTF-8
    are_framed = pc.and_(pc.starts_with(texts, begin), pc.ends_with(texts, "}"))
    refuse(not pc.all(are_framed, min_count=0).as_py())
    return pc.binary_slice(texts, len(frame.begin), -1)
