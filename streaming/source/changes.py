"""The changes of a lane, in order, as whole columns of decoded records (`streaming.source.decoded`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.chunks import whole
from schemas.formats.protocol import KeyEncoder
from state.columns import OFFSET, PARTITION
from streaming.source.decoded import HEADERS, KEY
from streaming.source.records import Bools


class _Values(NamedTuple):
    """Encoded values of the changes at `rows`, with these ops."""

    rows: npt.NDArray[np.int64]
    ops: npt.NDArray[np.int8]
    values: pa.BinaryArray


@dataclass(frozen=True)
class Changes:
    """n changes in order. `interval[i]` counts the batch's barriers before change i; it only rises.

    `before` and `after` hold the table's columns (null where the image is missing), `keys` the key columns. A record
    that is no change has op -1, or `MARKED`.
    """

    interval: npt.NDArray[np.int64]
    vnodes: npt.NDArray[np.int32]
    ops: npt.NDArray[np.int8]
    before: tuple[pa.Array, ...]
    after: tuple[pa.Array, ...]
    keys: tuple[pa.Array, ...]
    rows: pa.Table
    _encoded: dict[KeyEncoder, pa.Array] = field(default_factory=dict, init=False, repr=False)
    _values: dict[Hashable, _Values] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def partitions(self) -> npt.NDArray[np.int32]:
        """The upstream partition of each change."""
        return numpy_of(self.rows, PARTITION)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each change in its partition."""
        return numpy_of(self.rows, OFFSET)

    @property
    def record_keys(self) -> pa.Array:
        """The keys of the records as they came, null for none."""
        return whole(self.rows[KEY])

    @property
    def headers(self) -> pa.ListArray | None:
        """The headers of the records that jobs pass on; None where none does."""
        return whole(self.rows[HEADERS]) if HEADERS in self.rows.schema.names else None

    def filtered(self, kept: Bools) -> Changes:
        """The changes where `kept` is True, in their order."""
        mask = pa.array(kept)
        return self._picked(kept, lambda column: column.filter(mask))

    def taken(self, rows: npt.NDArray[np.int64]) -> Changes:
        """The changes at `rows`, in this order."""
        places = pa.array(rows)
        return self._picked(rows, lambda column: column.take(places))

    def _picked(self, picked: npt.NDArray[Any], pick: Callable[[Any], Any]) -> Changes:
        return Changes(
            interval=self.interval[picked],
            vnodes=self.vnodes[picked],
            ops=self.ops[picked],
            before=tuple(map(pick, self.before)),
            after=tuple(map(pick, self.after)),
            keys=tuple(map(pick, self.keys)),
            rows=pick(self.rows),
        )

    def bounds(self, intervals: int) -> npt.NDArray[np.int64]:
        """The first index of each interval, and the end: interval i is [bounds[i], bounds[i + 1])."""
        return np.searchsorted(self.interval, np.arange(intervals + 1))

    def encoded_keys(self, encoder: KeyEncoder) -> pa.Array:
        """The keys as this writes them, null where a record is no change; done once for equal encoders.

        The upstream's say whether its records have the keys of their rows, a job's are what is sent.
        """
        if encoder not in self._encoded:
            self._encoded[encoder] = self._encode_keys(encoder)
        return self._encoded[encoder]

    def encoded_values(
        self,
        form: Hashable,
        rows: npt.NDArray[np.int64],
        ops: npt.NDArray[np.int8],
        encode: Callable[[], pa.BinaryArray],
    ) -> pa.BinaryArray:
        """The values of these rows, encoded once. The last encoded values of each form are kept."""
        known = self._values.get(form)
        if known is None or not (np.array_equal(known.rows, rows) and np.array_equal(known.ops, ops)):
            known = self._values[form] = _Values(rows, ops, encode())
        return known.values

    def _encode_keys(self, encoder: KeyEncoder) -> pa.Array:
        decoded = pc.and_(pa.array(self.ops >= 0), pc.is_valid(self.keys[0]))
        if pc.all(decoded).as_py():
            return encoder(self.keys)
        encoded = encoder([key.filter(decoded) for key in self.keys])
        return pc.replace_with_mask(pa.nulls(len(self), encoded.type), decoded, encoded)


def numpy_of(rows: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column without nulls as an array of NumPy."""
    column: npt.NDArray[Any] = rows[name].to_numpy()
    return column
