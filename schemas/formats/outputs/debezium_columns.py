"""The encoders of the output format `debezium`, columnar.

Of what stands around the rows only the job's name, the barrier and the part differ, and the first two are few: their
texts are written once for each interval, and taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.avro.columnar import NULL, PRESENT, Part, encode_records
from schemas.avro.registered import frame
from schemas.by_op import in_order, rows_by_op, take
from schemas.formats.outputs.debezium_avro import source_bytes, tail_bytes
from schemas.formats.outputs.envelope import LETTERS, READ, event_frame, own_version, source, tail
from schemas.formats.protocol import Origins
from schemas.json.cells import Encoding
from schemas.json.columnar import joined, object_pieces
from schemas.json.pieces import Piece
from schemas.records import Barrier, Op
from schemas.table import Column

_Half = Sequence[pa.Array]


class _EventEncoder(ABC):
    """Encodes envelopes. Those of one op have the same images, so each op is encoded by itself."""

    __slots__ = ()

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        return self._events(READ, None, arrays, origins)

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        groups = rows_by_op(ops)
        if len(groups) <= 1:
            return self._of_one_op(next(iter(groups), Op.INSERT), before, after, origins)
        encoded = [
            (rows, self._of_one_op(op, take(before, rows), take(after, rows), _some(origins, rows)))
            for op, rows in groups.items()
        ]
        return in_order(encoded, len(ops))

    def _of_one_op(self, op: Op, before: _Half, after: _Half, origins: Origins) -> pa.BinaryArray:
        old, new = (None if op is Op.INSERT else before), (None if op is Op.DELETE else after)
        return self._events(LETTERS[op], old, new, origins)

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


def _some(origins: Origins, rows: npt.NDArray[np.int64]) -> Origins:
    parts, intervals = origins.parts[rows], origins.intervals[rows]
    return Origins(origins.job, origins.table, parts, intervals, origins.barriers)
