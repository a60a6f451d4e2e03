"""The records of a batch as far as their order in their databases' logs goes: read once more, in the order of offsets.

That is for batches in which positions fall (`streaming.core.redelivery`). A record that is invalid is left out: the
lane that has it reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec.log_positions import positions_in
from schemas.formats.protocol import KeyEncoder, UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.records import Op, RecordId
from schemas.table import TableSchema
from state.columns import OFFSET, OP, PARTITION
from streaming.core.redelivery import Logged
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.source.decoded import AFTER, BEFORE, POSITION
from streaming.source.direct_read import raw_record
from streaming.source.raw.decoding import RecordDecoder
from streaming.source.raw.records import Records


@dataclass(frozen=True)
class LoggedRecords:
    """A reader of the topic of one table. `holds_barriers`: some records are barriers, which are left out."""

    kafka: KafkaSettings
    topic: str
    table: TableSchema
    holds_barriers: bool

    def read(
        self, ranges: Mapping[int, tuple[int, int]], format_: UpstreamFormat, skipped: Set[RecordId]
    ) -> Iterator[Logged]:
        """The committed records in these offsets [first, end), each partition's in order, without those `skipped`.

        Raises: EnvironmentProblem, DataLost as `RangeReader.read`.
        """
        decoder, encoder = RecordDecoder(format_, self.table), DEFAULT.keys(self.table.key_columns)
        assert encoder is not None
        with RangeReader(self.kafka) as reader:
            for chunk in reader.read(self.topic, ranges):
                found = [each for each in chunk if located(each) not in skipped]
                records = Records.of([raw_record(each, self.holds_barriers) for each in found])
                batch = decoder.decoded(records, pa.nulls(len(found), pa.int32()))
                yield from logged_in(batch, self.table.primary_key, encoder)


def logged_in(batch: pa.RecordBatch, key_names: Sequence[str], encoder: KeyEncoder) -> Iterator[Logged]:
    """The judged part of decoded records (`streaming.source.decoded`), for changes only, in their order."""
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
