"""Whole columns of one output, which lanes pass to a writer: a sink uses them as they are or encoded as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.records import Barrier, Op
from streaming.sink.output import Output
from streaming.source.decoded import Changes

Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values of a record's headers, in their order; a name may be there more than once."""
_HEADER_BYTES = 10
"""The lengths of a header, in addition to its name and value."""


def _headers_size(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") + _HEADER_BYTES for name, value in headers)


@dataclass(frozen=True)
class EncodedRecords:
    """Records as a format writes them: keys and values, each with a null for none. Record i goes to `partitions[i]`.

    `headers` are those of the upstream's records that the job passes on, by record; None where it passes none on.
    """

    partitions: npt.NDArray[np.int32]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.partitions)

    @cached_property
    def _sizes(self) -> npt.NDArray[np.int64]:
        keys, values = (pc.binary_length(each).fill_null(0) for each in (self.keys, self.values))
        sizes: npt.NDArray[np.int64] = keys.to_numpy().astype(np.int64) + values.to_numpy()
        if self.headers is not None:
            sizes += np.fromiter(map(_headers_size, self.headers), np.int64, len(self.headers))
        return sizes

    def size(self, number: int) -> int:
        """Bytes of a record's key and value, and of the headers that are passed on."""
        return int(self._sizes[number])

    def longer_than(self, limit: int) -> list[int]:
        """The records with more than so many bytes."""
        return np.flatnonzero(self._sizes > limit).tolist() if len(self) else []

    def slice(self, low: int, high: int) -> EncodedRecords:
        """Records `low` to `high` (exclusive), without a copy."""
        length = high - low
        return EncodedRecords(
            self.partitions[low:high],
            self.keys.slice(low, length),
            self.values.slice(low, length),
            None if self.headers is None else self.headers[low:high],
        )


@dataclass(frozen=True, kw_only=True)
class SnapshotRows:
    """Rows of a snapshot read, each an INSERT. `arrays` maps column names to values, also of other columns.

    The arrays are of one length and of their columns' exact types, as encoders need them, and `parts` has the part of
    each row. `barrier` closes the interval in which they are sent. `keys` and `columns` are in the job's order.
    """

    output: Output
    parts: npt.NDArray[np.int32]
    barrier: Barrier
    arrays: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def partitions(self) -> npt.NDArray[np.int32]:
        return self.output.partitions_of(self.parts)

    @property
    def keys(self) -> list[pa.Array]:
        return self.output.shown(self.output.in_key, self.arrays.__getitem__, len(self))

    @property
    def columns(self) -> list[pa.Array]:
        return self.output.shown(self.output.definition.columns, self.arrays.__getitem__, len(self))

    @cached_property
    def records(self) -> EncodedRecords:
        """These rows, encoded in the output's format."""
        origins = self.output.origins(self.parts, np.zeros(len(self), np.int64), [self.barrier])
        values, encode_keys = self.output.values.inserts(self.columns, origins), self.output.keys
        assert encode_keys is not None, "what has no key of its own is not read from a replica"
        return EncodedRecords(self.partitions, encode_keys(self.keys), values)


@dataclass(frozen=True, kw_only=True)
class ChangeColumns:
    """The changes of one output: those of `decoded` at the indices `rows`. Nothing is copied before a writer needs it.

    `ops`, `partitions` and `parts` have one entry per row. `ops` are the output's: a filter can turn an UPDATE of the
    table into an INSERT or a DELETE, and a key that it moves into both, DELETE first. Interval i, which `barriers[i]`
    closes, is `bounds[i]` to `bounds[i + 1]`.
    """

    output: Output
    decoded: Changes
    rows: npt.NDArray[np.int64]
    ops: npt.NDArray[np.int8]
    partitions: npt.NDArray[np.int32]
    parts: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.int64]
    barriers: Sequence[Barrier]

    def runs(self) -> list[OutputChanges]:
        """The changes of each interval; one run per barrier, possibly empty."""
        bounds = pairwise(self.bounds.tolist())
        return [
            OutputChanges(self, *each, barrier) for each, barrier in zip(bounds, self.barriers, strict=True)
        ]

    def taken(self, images: Sequence[pa.Array], low: int, high: int) -> list[pa.Array]:
        """The output's columns of the before or after images of the changes from `low` to `high`."""
        names, rows = self.output.table.column_names, pa.array(self.rows[low:high])
        shown = self.output.definition.columns
        return self.output.shown(shown, lambda name: images[names.index(name)].take(rows), len(rows))

    def keys(self, low: int, high: int) -> list[pa.Array]:
        """The columns of the keys of the changes from `low` to `high`: of a DELETE those of the row before."""
        names, rows, decoded = self.output.table.column_names, pa.array(self.rows[low:high]), self.decoded
        if not self.output.definition.key:
            return [column.take(rows) for column in decoded.keys]
        gone = pa.array(self.ops[low:high] == Op.DELETE)

        def values(name: str) -> pa.Array:
            before, after = (
                images[names.index(name)].take(rows) for images in (decoded.before, decoded.after)
            )
            return pc.if_else(gone, before, after)

        return self.output.shown(self.output.in_key, values, len(rows))

    @cached_property
    def records(self) -> EncodedRecords:
        """All changes encoded at once, which is faster than run by run."""
        encoder, headers = self.output.keys, self._headers()
        if encoder is not None and self.output.definition.key:
            keys = encoder(self.keys(0, len(self.rows)))
        else:
            every = self.decoded.record_keys if encoder is None else self.decoded.encoded_keys(encoder)
            keys = every.take(pa.array(self.rows))
        if not self.output.definition.format.tombstone_follows:
            return EncodedRecords(self.partitions, keys, self._values, headers)
        # Each DELETE twice, the second time without its value.
        index = np.repeat(np.arange(len(self.rows)), self._lengths)
        again = np.diff(index, prepend=np.int64(-1)) == 0
        values = self._values.take(pa.array(index, mask=again))
        again_headers = None if headers is None else [headers[number] for number in index.tolist()]
        return EncodedRecords(self.partitions[index], keys.take(pa.array(index)), values, again_headers)

    def _headers(self) -> list[Headers] | None:
        """The headers that the job passes on, by change."""
        names, every = self.output.definition.headers, self.decoded.headers
        if not names or every is None:
            return None
        return [
            tuple((each["key"], each["value"]) for each in found or () if each["key"] in names)
            for found in every.take(pa.array(self.rows)).to_pylist()
        ]

    @cached_property
    def _values(self) -> pa.BinaryArray:
        format_ = self.output.definition.format
        if format_.names_origin:
            return self._encoded()
        form = format_, self.output.definition.columns, self.output.hash_key
        return self.decoded.encoded_values(form, self.rows, self.ops, self._encoded)

    def _encoded(self) -> pa.BinaryArray:
        count = len(self.rows)
        before, after = (self.taken(images, 0, count) for images in (self.decoded.before, self.decoded.after))
        intervals = np.repeat(np.arange(len(self.barriers)), np.diff(self.bounds))
        origins = self.output.origins(self.parts, intervals, self.barriers)
        return self.output.values.changes(pa.array(self.ops, pa.int8()), before, after, origins)

    @cached_property
    def _lengths(self) -> npt.NDArray[np.int64]:
        lengths = np.ones(len(self.ops), np.int64)
        if self.output.definition.format.tombstone_follows:
            lengths += self.ops == Op.DELETE
        return lengths

    def change_of(self, record: int) -> int:
        """The index of a record's change."""
        return int(np.searchsorted(self.record_bounds, record, side="right")) - 1

    @cached_property
    def record_bounds(self) -> npt.NDArray[np.int64]:
        """The index of the first record of each change, and the number of all records at the end."""
        return np.concatenate(([0], np.cumsum(self._lengths)))


@dataclass(frozen=True)
class OutputChanges:
    """The changes of one interval, in order; `barrier` closes it.

    `before` of an INSERT and `after` of a DELETE hold arbitrary values: check `ops` first.
    Records are encoded once for all runs of a `ChangeColumns`, and kept there.
    """

    whole: ChangeColumns
    low: int
    high: int
    barrier: Barrier

    def __len__(self) -> int:
        return self.high - self.low

    @property
    def output(self) -> Output:
        return self.whole.output

    @property
    def ops(self) -> npt.NDArray[np.int8]:
        """A value of `records.Op` for each change."""
        return self.whole.ops[self.low : self.high]

    @property
    def partitions(self) -> npt.NDArray[np.int32]:
        return self.whole.partitions[self.low : self.high]

    @property
    def keys(self) -> list[pa.Array]:
        """The columns of records' keys, in the job's order."""
        return self.whole.keys(self.low, self.high)

    @property
    def before(self) -> list[pa.Array]:
        """The output's columns."""
        return self.whole.taken(self.whole.decoded.before, self.low, self.high)

    @property
    def after(self) -> list[pa.Array]:
        """The output's columns."""
        return self.whole.taken(self.whole.decoded.after, self.low, self.high)

    @property
    def records(self) -> EncodedRecords:
        """The changes, encoded in the output's format. A DELETE may become two records."""
        low, high = self.whole.record_bounds[[self.low, self.high]].tolist()
        return self.whole.records.slice(low, high)
