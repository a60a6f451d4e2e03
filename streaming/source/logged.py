"""The records of a batch as far as their order in their databases' logs goes: read once more, in the order of offsets.

That is for batches in which positions fall (`streaming.core.redelivery`). Of a record its key and its source are read,
and no value of its row. One that can't be read even so far is left out: the lane that has it reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import InputError
from schemas.formats.by_columns.log_positions import positions_in
from schemas.formats.protocol import Format, KeyEncoder
from schemas.formats.registry import DEFAULT
from schemas.records import BARRIER_HEADER, OddRecordError, Op, RecordId
from schemas.table import TableSchema
from state.columns import OFFSET, OP, PARTITION
from streaming.core.redelivery import Logged
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.source.decoded import AFTER, BEFORE, POSITION

Ranges = Mapping[int, tuple[int, int]]
"""Offsets [first, end) by partition."""

_Raw = tuple[int, int, bytes | None, bytes | None]
"""Partition, offset, key and value."""


@dataclass(frozen=True)
class LoggedRecords:
    """Of the topic of one table. `holds_barriers`: some records are barriers, which are left out."""

    kafka: KafkaSettings
    topic: str
    table: TableSchema
    holds_barriers: bool

    def read(self, ranges: Ranges, format_: Format, skipped: Set[RecordId]) -> Iterator[Logged]:
        """The committed records in these ranges, each partition's in order, without those `skipped`.

        Raises: EnvironmentProblem, DataLost as `RangeReader.read`.
        """
        decode = LoggedDecoder(format_, self.table)
        with RangeReader(self.kafka) as reader:
            for chunk in reader.read(self.topic, ranges):
                raw = [
                    (*located(each), each.key(), each.value())
                    for each in chunk
                    if located(each) not in skipped
                    and not (self.holds_barriers and header_of(each, BARRIER_HEADER) is not None)
                ]
                yield from decode(raw)


class LoggedDecoder:
    """Decodes what is judged of records: together if it can, else one by one."""

    def __init__(self, format_: Format, table: TableSchema) -> None:
        self._keys = table.key_columns
        self._rows = format_.rows(self._keys, self._keys)
        self._read = format_.column_reader(self._keys, self._keys)
        self._names = [column.name for column in self._keys]

    def __call__(self, raw: list[_Raw]) -> Iterator[Logged]:
        """Those that change a row, in their order; without those that can't be read."""
        if self._read is None or not raw:
            yield from self._one_by_one(raw)
            return
        keys, values = (pa.array([each[half] for each in raw], pa.binary()) for half in (2, 3))
        try:
            found = self._read(keys, values)
        except OddRecordError:
            yield from self._one_by_one(raw)
            return
        columns = {
            PARTITION: pa.array([each[0] for each in raw], pa.int32()),
            OFFSET: pa.array([each[1] for each in raw], pa.int64()),
            OP: pa.array(found.ops),
            BEFORE: found.before,
            AFTER: found.after,
            POSITION: found.positions,
        }
        yield from logged_in(pa.RecordBatch.from_pydict(columns), self._names, self._encoder)

    @property
    def _encoder(self) -> KeyEncoder:
        encoder = DEFAULT.keys(self._keys)
        assert encoder is not None
        return encoder

    def _one_by_one(self, raw: Iterable[_Raw]) -> Iterator[Logged]:
        for partition, offset, key, value in raw:
            try:
                record = self._rows.read_record(key, value)
            except InputError:
                continue
            if record.change is not None:
                row = zip(record.change.row, self._keys, strict=True)
                encoded = self._encoder([pa.array([each], column.type.arrow) for each, column in row])
                op, position = record.change.op, record.position
                yield Logged(partition, offset, bytes(encoded[0].as_py()), op, position)


def logged_in(batch: pa.RecordBatch, key_names: Sequence[str], encoder: KeyEncoder) -> Iterator[Logged]:
    """What is judged of decoded records (`streaming.source.decoded`), of changes alone, in their order."""
    batch = batch.filter(pc.greater_equal(batch[OP], 0))
    before, after = batch[BEFORE], batch[AFTER]
    rows = pc.if_else(after.is_valid(), after, before)
    keys = encoder([pc.struct_field(rows, name) for name in key_names])
    yield from map(
        Logged,
        batch[PARTITION].to_pylist(),
        batch[OFFSET].to_pylist(),
        map(bytes, keys.to_pylist()),
        map(Op, batch[OP].to_pylist()),
        positions_in(batch[POSITION]),
    )
