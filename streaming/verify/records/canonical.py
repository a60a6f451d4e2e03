"""Records of any form in the one that the judge computes with: keys and changes in Avro, as bytes.

A topic of another form than `change` is read record by record by a reader that shares nothing with what wrote it
(`streaming.reading.records`). Invalid records have no value in canonical form. Of an upstream's events, those that are
redelivered are left out, and values that they leave out are filled in from the row before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from schemas.records import Op
from schemas.table import Column
from streaming.reading.entries import RecordFault, Source, TopicEntry
from streaming.reading.records.forms import CHANGE_FORM, RecordForm
from streaming.reading.records.logs import LogName
from streaming.reading.values.avro_bytes import OPS, RowCodec
from streaming.verify.records.recoding import (
    CanonicalReader,
    CanonicalRecord,
    Decoded,
    Decoding,
    EntryChunk,
    in_process,
)
from streaming.verify.records.redelivered import RedeliveryRule, WentBack
from streaming.verify.records.rows import compose, op_of

OnWentBack = Callable[[int, int, WentBack], None]
"""Called with partition and offset of a record whose log has gone back, and what was found."""
_CHUNK_RECORDS, _CHUNK_BYTES = 1_000, 1 << 20


def canonical(
    sources: Sequence[Source],
    form: RecordForm,
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    on_went_back: OnWentBack = lambda partition, offset, found: None,
    decoding: Decoding = in_process,
) -> list[Source]:
    """Sources of a topic by partition, each in canonical form; those that have it already are left as they are."""
    if form == CHANGE_FORM:
        return list(sources)
    reader = CanonicalReader(form, columns, key_columns)
    decode = decoding(reader)
    snapshots: SnapshotRows = {}
    stored: dict[bytes, bytes] = {}
    return [
        CanonicalSource(
            source,
            form,
            lambda entries: decode(_chunks(entries, reader.ends)),
            PartitionOrder(RowCodec(columns), form, snapshots, stored, partial(on_went_back, number)),
        )
        for number, source in enumerate(sources)
    ]


class CanonicalSource:
    """A partition in canonical form."""

    def __init__(
        self,
        source: Source,
        form: RecordForm,
        decode: Callable[[Iterator[TopicEntry]], Decoded],
        order: PartitionOrder,
    ) -> None:
        self._source, self._form, self._decode, self._order = source, form, decode, order

    def entries(self) -> Iterator[TopicEntry]:
        """The source's entries that concern the table."""
        pairs = self._pairs()
        if self._form.has_tombstones:
            pairs = _without_tombstones(pairs)
        return (entry for _, entry in pairs if entry is not None)

    def extend(self) -> bool:
        """Extend the source."""
        return self._source.extend()

    def _pairs(self) -> Iterator[_Pair]:
        for entry, record in self._decode(self._source.entries()):
            if record is None:
                self._order.end_interval(entry)
                yield entry, entry
            else:
                yield entry, self._order.taken(entry, record)


_Pair = tuple[TopicEntry, TopicEntry | None]
"""A record as it came, and in canonical form; None where it is no change."""


def _chunks(entries: Iterator[TopicEntry], ends: Sequence[int]) -> Iterator[EntryChunk]:
    """Entries in their order, some at a time; none is empty, and none goes on behind a barrier that is among `ends`."""
    chunk, size, epoch, left = list[TopicEntry](), 0, 0, deque(ends)
    for entry in entries:
        chunk.append(entry)
        size += len(entry.value or b"")
        is_end = bool(left) and entry.barrier is not None and int(entry.barrier) >= left[0]
        if len(chunk) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES or is_end:
            yield EntryChunk(chunk, epoch)
            chunk, size = [], 0
        if is_end:
            epoch = left.popleft()
    if chunk:
        yield EntryChunk(chunk, epoch)


def _without_tombstones(pairs: Iterator[_Pair]) -> Iterator[_Pair]:
    """Each DELETE with the record behind it that repeats its key, without that one. Any other null is invalid."""
    deleted: tuple[TopicEntry, TopicEntry] | None = None
    for entry, recoded in pairs:
        is_change = entry.barrier is None
        if deleted is not None:
            if is_change and (entry.key, entry.value) == (deleted[0].key, None):
                yield deleted
                deleted = None
                continue
            yield deleted[0], _invalid(deleted[0])
            deleted = None
        if is_change and entry.value is None:
            yield entry, _invalid(entry)
        elif is_change and recoded is not None and op_of(recoded.value or b"") is Op.DELETE:
            deleted = entry, recoded
        else:
            yield entry, recoded


def _invalid(entry: TopicEntry, fault: RecordFault | None = None) -> TopicEntry:
    """An invalid record: it has no value, and the key that it came with."""
    return entry._replace(value=b"", given=(entry.key, entry.value), fault=fault)


SnapshotRows = dict[bytes, set[LogName]]
"""By the header of the barrier that closes an interval, the rows of snapshots in it, of all partitions."""


class PartitionOrder:
    """The changes of one partition in order: redelivered ones are left out, and values that are left out filled in.

    `snapshots` is shared by the partitions of a topic, which are read from barrier to barrier, and so is `stored`, the
    rows by key, whose partition may have changed.
    """

    def __init__(
        self,
        rows: RowCodec,
        form: RecordForm,
        snapshots: SnapshotRows,
        stored: dict[bytes, bytes],
        on_went_back: Callable[[int, WentBack], None],
    ) -> None:
        self._rows, self._form = rows, form
        self._rule = RedeliveryRule() if form.is_redelivered else None
        self._stored = stored
        self._snapshots, self._on_went_back = snapshots, on_went_back
        self._ended: bytes | None = None

    def end_interval(self, entry: TopicEntry) -> None:
        """At a barrier. The rows of snapshots in other partitions are known once these were read up to it."""
        if self._rule is not None:
            self._settle(self._rule)
            self._ended = entry.barrier or b""
            self._snapshots.setdefault(self._ended, set()).update(self._rule.snapshots)

    def _settle(self, rule: RedeliveryRule) -> None:
        if self._ended is not None:
            rule.end_interval(self._snapshots[self._ended])
            self._ended = None

    def taken(self, entry: TopicEntry, record: CanonicalRecord) -> TopicEntry | None:
        """The change with the values that it leaves out; None for no change, and for a redelivered one."""
        key, value = record.key, record.value
        if record.fault is not None:
            return _invalid(entry, record.fault)
        if value is None:
            return None
        if self._rule is not None:
            self._settle(self._rule)
            op = OPS[value[0] // 2]
            if self._rule.drops(key, op, record.place):
                return None
            if self._rule.went_back is not None:
                self._on_went_back(entry.offset, self._rule.went_back)
            if self._form.may_leave_values_out:
                value = self._filled(key or b"", value, op, record.left_out)
        if value is None:
            return _invalid(entry)
        given = entry.key, entry.value
        return entry._replace(
            key=key, value=value, barrier=None, given=given, place=record.place, width=record.width
        )

    def _filled(self, key: bytes, value: bytes, op: Op, left_out: Sequence[int]) -> bytes | None:
        """The change with the values of the row before; None where there is none."""
        if op is Op.DELETE:
            self._stored.pop(key, None)
            return value
        if left_out:
            stored, after = self._stored.get(key), self._rows.change(value).after
            if stored is None or after is None:
                return None
            before, row = self._rows.change(stored).after or (), list(after)
            for index in left_out:
                row[index] = before[index]
            value = compose(None, self._rows.row_bytes(tuple(row))) or b""
        self._stored[key] = value
        return value
