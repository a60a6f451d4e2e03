"""The encoder of the output format `debezium` in JSON, by whole columns.

Of what stands around the rows only the job's name, the barrier and the part differ, and the first two are few: their
texts are written once for each interval, and taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.formats.outputs.envelope import LETTERS, READ, event_frame, own_version, source, tail
from schemas.formats.outputs.ops import in_order, rows_by_op, take
from schemas.formats.protocol import Origins
from schemas.json.columnar import joined, object_pieces
from schemas.json.pieces import Piece
from schemas.json.written import Encoding
from schemas.records import Op
from schemas.table import Column

_Half = Sequence[pa.Array]


@dataclass(frozen=True, slots=True)
class JsonEvents:
    """Envelopes."""

    columns: tuple[Column, ...]
    encoding: Encoding

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

    def _events(
        self, letter: str, before: _Half | None, after: _Half | None, origins: Origins
    ) -> pa.BinaryArray:
        length = len(origins)
        begin, end = event_frame(self.columns, self.encoding)
        rows = [*self._row(b'{"before":', before, length), *self._row(b',"after":', after, length)]
        return joined(length, [begin, *rows, *_origin(letter, origins), end])

    def _row(self, name: bytes, arrays: _Half | None, length: int) -> list[Piece]:
        if arrays is None:
            return [name, b"null"]
        return [name, *object_pieces(self.columns, arrays, self.encoding, length)]


def _origin(letter: str, origins: Origins) -> list[Piece]:
    """All behind the row after."""
    barriers, by = origins.barriers, own_version()
    sources = [source(origins.job, origins.table, letter, barrier, by) for barrier in barriers]
    return [
        _taken(sources, origins.intervals),
        _numbers(origins.parts),
        _taken([tail(letter, barrier) for barrier in barriers], origins.intervals),
    ]


def _taken(texts: list[str], places: npt.NDArray[np.int64]) -> Piece:
    """Of each row the text at its place, a constant if it is one for all."""
    first = int(places[0]) if len(places) else 0
    if not len(places) or (places == first).all():
        return texts[first].encode() if texts else b""
    return pa.array([text.encode() for text in texts], pa.binary()).take(pa.array(places))


def _numbers(numbers: npt.NDArray[np.int32]) -> Piece:
    if len(numbers) and (numbers == numbers[0]).all():
        return str(numbers[0]).encode()
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _some(origins: Origins, rows: npt.NDArray[np.int64]) -> Origins:
    parts, intervals = origins.parts[rows], origins.intervals[rows]
    return Origins(origins.job, origins.table, parts, intervals, origins.barriers)
