"""Records decoded as lanes decode them, compared with what the reference decoder reads from each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from schemas.avro.columnar import encode_changes
from schemas.avro.registered import framed_id
from schemas.codec.log_positions import POSITION_TYPE, positions_in
from schemas.errors import InputError
from schemas.formats.protocol import Images, UpstreamFormat
from schemas.records import Barrier, BarrierKind
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, TRANSACTION, VNODE
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from streaming.lane.changes import order_changes
from streaming.lane.faults import MOST_FAULTS, find_faults
from streaming.source.decoded import POSITION, UNCHANGED, Changes, RecordDecoder
from streaming.source.records import Records, RecordVnodes
from tests.kit.avro_codec import ChangeCodec
from tests.kit.single_records import single_records
from tests.kit.tables import vnode_of
from tests.kit.two_ways import last_word_alone
from tests.kit.upstream_record import UpstreamRecord

Record = tuple[bytes | None, bytes | None]
"""Key and value."""


def raw(found: Sequence[Record]) -> Records:
    """Records of partition 0, at offsets from 0 on."""
    return Records.of([(0, offset, *record, False) for offset, record in enumerate(found)])


def batch_of(format_: UpstreamFormat, table: TableSchema, records: Records) -> pa.RecordBatch:
    """Records as a lane decodes them, by a decoder that has read nothing before."""
    numbers = RecordVnodes(format_, table).of(records).numbers
    return RecordDecoder(format_, table).decoded(records, numbers)


def changes_of(format_: UpstreamFormat, table: TableSchema, found: Sequence[Record]) -> Changes:
    """All records that say something, in their order."""
    batch = batch_of(format_, table, raw(found))
    barrier = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (len(found),), in_data=False)
    plan = BatchPlan(None, (barrier,), (0,), ReplicaVersion(0, 0, 0), 1)
    return order_changes([batch], batch.schema, plan, table)


def by_reference(format_: UpstreamFormat, table: TableSchema, found: Sequence[Record]) -> list[bytes | str]:
    """Each change in bytes in which NaN equals itself, or the code of its error."""
    codec = ChangeCodec(table.columns)

    def said(record: UpstreamRecord | str) -> bytes | str:
        if isinstance(record, str):
            return record
        assert record.change is not None
        return codec.encode(record.change)

    return [said(each) for each in _reference(format_, table, found)]


def differences(format_: UpstreamFormat, table: TableSchema, found: Sequence[Record]) -> list[object]:
    """Records that are decoded, all together or each by itself, to something else than the reference decoder reads.

    By itself a record is read by whole columns if these take it, whatever stands beside it elsewhere. Ids of schemas
    that the format does not know are such as the registry does not know.
    """
    format_ = _asked(format_, found)
    changes = changes_of(format_, table, found)
    wrong = _wrong(changes, format_, table, found)
    together = changes.rows.to_pylist()
    vnodes, decoder, records = RecordVnodes(format_, table), RecordDecoder(format_, table), raw(found)
    for offset, record in enumerate(found):
        one = Records(*(column.slice(offset, 1) for column in records if column is not None))
        [alone] = decoder.decoded(one, vnodes.of(one).numbers).to_pylist()
        if repr(alone) != repr(together[offset]):  # as equal as NaN is to NaN, and -0.0 is not to 0.0
            wrong.append((record, "alone", alone, "together", together[offset]))
    return wrong


def _asked(format_: UpstreamFormat, found: Sequence[Record]) -> UpstreamFormat:
    if not format_.framed:
        return format_
    ids = {framed_id(half) for record in found for half in record if half is not None}
    unknown = format_.known.unanswered(each for each in ids if each is not None)
    return format_.with_schemas(replace(format_.known, refused=unknown))


def _wrong(
    changes: Changes, format_: UpstreamFormat, table: TableSchema, found: Sequence[Record]
) -> list[object]:
    reference, encoded = by_reference(format_, table, found), _encoded(changes, table)
    faults = {fault.offset: str(fault.code) for fault in find_faults(changes, table, format_=format_)}
    assert len(faults) < MOST_FAULTS
    if format_.images is Images.AFTER_ONLY:
        assert changes.rows[BEFORE_HASH].null_count == len(found)  # the row that was there is not known
    wrong: list[object] = []
    for offset, (record, said) in enumerate(zip(found, reference, strict=True)):
        own = faults.get(offset) if isinstance(said, str) else encoded[offset]
        if own != said:
            wrong.append((record, own, said))
    return wrong + _wrong_beside(changes, format_, table, found)


def _wrong_beside(
    changes: Changes, format_: UpstreamFormat, table: TableSchema, found: Sequence[Record]
) -> list[object]:
    """Differences of what a record has beside its change, and of its vnode."""
    wrong: list[object] = []
    for row, record in zip(changes.rows.to_pylist(), _reference(format_, table, found), strict=True):
        if isinstance(record, str) or record.change is None:
            continue
        expected: list[object] = [
            vnode_of(table, table.key_of(record.change.row)) if table.has_key else 0,
            record.unchanged,
            record.position,
            record.transaction if TRANSACTION in row else None,
        ]
        own = [
            row[VNODE],
            tuple(row.get(UNCHANGED) or ()),
            next(positions_in(pa.array([row.get(POSITION)], POSITION_TYPE))),
            row.get(TRANSACTION),
        ]
        wrong += [] if own == expected else [(own, expected)]
    return wrong


def _reference(
    format_: UpstreamFormat, table: TableSchema, found: Sequence[Record]
) -> list[UpstreamRecord | str]:
    rows = single_records(format_, table.columns, table.key_columns)

    def read(record: Record) -> UpstreamRecord | str:
        try:
            return rows.read_record(*record, where="t-0@7")
        except InputError as error:
            return str(error.code)

    with last_word_alone():
        return list(map(read, found))


def _encoded(changes: Changes, table: TableSchema) -> list[bytes | None]:
    """Each in the bytes of `by_reference`, None where it did not decode."""
    sound = [row for row, op in enumerate(changes.ops) if op >= 0]
    halves = (
        [column.take(pa.array(sound, pa.int64())) for column in half]
        for half in (changes.before, changes.after)
    )
    ops = pa.array(changes.ops[sound], pa.int8())
    found = dict(zip(sound, encode_changes(table.columns, ops, *halves).to_pylist(), strict=True))
    return [found.get(row) for row in range(len(changes))]
