"""Records of any form in the one that the judge computes with: keys and rows in Avro, as bytes that are compared.

A topic is read record by record by a reader that shares nothing with what wrote it (`streaming.reading.records`), and
what it says is written down in one form, so equal rows are equal bytes, NaN and -0.0 included. Of an upstream's events,
those that are redelivered are left out, and values that they leave out are filled in from the row before.

To read is most of the work of a judgement, so several processes do it where there are many records. One takes half a
second to start. They are spawned, as a fork would take librdkafka's locks but not its threads.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import islice, starmap
from typing import Any, NamedTuple, Self

from schemas.errors import InputError
from schemas.records import Op
from schemas.table import Column
from streaming.reading.entries import RecordFault, RowChange, Source, TopicEntry
from streaming.reading.records.forms import ReadRecord, RecordForm, RowImages
from streaming.reading.records.logs import LogName
from streaming.reading.records.reader import reader_of
from streaming.reading.values.avro_bytes import RowCodec
from streaming.reading.values.avro_fields import schema_id_of
from streaming.verify.records.order import RedeliveryRule, WentBack

Pairs = Sequence[tuple[bytes | None, bytes | None]]
"""Keys and values."""
OnWentBack = Callable[[int, int, WentBack], None]
"""Called with partition and offset of a record whose log has gone back, and what was found."""
_CHUNK_RECORDS, _CHUNK_BYTES = 1_000, 1 << 20
_AT_ONCE = 4
"""Chunks of a partition that are decoded together."""
WORTH_PROCESSES = 100_000
"""Records that keep one process busy for some seconds."""


class CanonicalRecord(NamedTuple):
    """A record as it was read. Without `change` it says nothing of the table, or is `invalid`; `fault` may say why.

    `read` has what else it says (`ReadRecord`), but not its change once more; `has_other_key` as in `TopicEntry`.
    """

    change: RowChange | None
    read: ReadRecord = ReadRecord(None)
    invalid: bool = False
    fault: RecordFault | None = None
    has_other_key: bool = False


class CanonicalReader:
    """Reads records of one form, and brings them into canonical form."""

    def __init__(self, form: RecordForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._form, self._columns, self._key_columns = form, tuple(columns), tuple(key_columns)
        self._reader = reader_of(form, columns, key_columns)
        self._rows, self._keys = RowCodec(columns), RowCodec(key_columns)
        self._has_identity = form.rows_before is not RowImages.NO_IDENTITY
        places = {column.name: place for place, column in enumerate(columns)}
        in_key = (column.name for column in key_columns)
        self._key_places = [(number, places[name]) for number, name in enumerate(in_key) if name in places]
        """Of the key's columns those that are in rows: their numbers in the key, and in a row."""
        self.ends = sorted({former.epoch for column in columns for former in column.read_as})
        """Barriers at which columns got other names in records."""
        self._former = dict[int, CanonicalReader]()

    def behind(self, epoch: int) -> CanonicalReader:
        """The reader of the records behind a barrier: up to a later one, columns may have had other names."""
        until = next((last for last in self.ends if epoch < last), None)
        if until is None:
            return self
        if until not in self._former:
            columns = [column.as_read(until) for column in self._columns]
            self._former[until] = CanonicalReader(self._form, columns, self._key_columns)
        return self._former[until]

    def for_other_process(self) -> bytes:
        """A pickled copy for another process, without schemas: these have to be sent with the records."""
        schemas: Any = None if self._form.schemas is None else {}
        return pickle.dumps((replace(self._form, schemas=schemas), self._columns, self._key_columns))

    def schemas_of(self, pairs: Pairs) -> Mapping[int, Any]:
        """The schemas that records name, by id, those of a registry; without ids that it does not know."""
        if (schemas := self._form.schemas) is None:
            return {}
        ids = {schema_id_of(part) for pair in pairs for part in pair if part is not None} - {None}
        found = ((each, schemas.get(each)) for each in ids if each is not None)
        return {number: schema for number, schema in found if schema is not None}

    def read(self, key: bytes | None, value: bytes | None) -> CanonicalRecord:
        """One record."""
        if self._form.format == "change" and not (key and value):
            return CanonicalRecord(None, invalid=True)
        try:
            record = self._reader.record(key, value)
            if record.change is None:
                return CanonicalRecord(None)
            own, is_other = key, False
            if self._has_identity:
                keys = self._reader.key(key) if record.key is None else record.key
                own, after = self._keys.row_bytes(keys), record.change.after
                is_other = after is not None and any(after[at] != keys[n] for n, at in self._key_places)
        except InputError as error:
            return CanonicalRecord(None, invalid=True, fault=RecordFault.of(error))
        change = RowChange(own, *(record.rows or self._rows.written_rows(record.change)))
        rest = ReadRecord(None, record.left_out, record.place, None, record.width)
        return CanonicalRecord(change, rest, has_other_key=is_other)


class RecordChunk(NamedTuple):
    """Records of a partition, and a barrier that stands before them."""

    pairs: Pairs
    epoch: int = 0


Decode = Callable[[Sequence[RecordChunk]], Iterable[list[CanonicalRecord]]]
"""Reads some chunks of records."""
Decoding = Callable[[CanonicalReader], Decode]


def in_process(reader: CanonicalReader) -> Decode:
    """Decodes in this process."""
    return lambda chunks: (list(starmap(reader.behind(epoch).read, pairs)) for pairs, epoch in chunks)


class Processes:
    """Processes that decode, a context manager. `in_other_processes` is a `Decoding`."""

    def __init__(self, count: int | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count or max(1, os.cpu_count() or 1), mp_context=context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def in_other_processes(self, reader: CanonicalReader) -> Decode:
        """Decodes there, all chunks at once."""
        pickled = cache(CanonicalReader.for_other_process)

        def decode(chunks: Sequence[RecordChunk]) -> Iterator[list[CanonicalRecord]]:
            readers, pairs = (
                [pickled(reader.behind(each.epoch)) for each in chunks],
                [each.pairs for each in chunks],
            )
            return self._pool.map(_read, readers, map(reader.schemas_of, pairs), pairs)

        return decode


_readers: dict[bytes, tuple[CanonicalReader, dict[int, Any]]] = {}
"""In a process of its own: those that it was sent, with the schemas that they know."""


def _read(pickled: bytes, schemas: Mapping[int, Any], pairs: Pairs) -> list[CanonicalRecord]:
    if pickled not in _readers:
        form, columns, key_columns = pickle.loads(pickled)  # noqa: S301 (made by this program)
        _readers[pickled] = CanonicalReader(form, columns, key_columns), form.schemas
    reader, known = _readers[pickled]
    if schemas:
        known.update(schemas)
    return [reader.read(*pair) for pair in pairs]


def canonical(
    sources: Sequence[Source],
    form: RecordForm,
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    on_went_back: OnWentBack = lambda partition, offset, found: None,
    decoding: Decoding = in_process,
) -> list[Source]:
    """Sources of a topic by partition, each in canonical form."""
    reader = CanonicalReader(form, columns, key_columns)
    decode = decoding(reader)
    snapshots: SnapshotRows = {}
    stored: dict[bytes | None, bytes] = {}
    return [
        CanonicalSource(
            source,
            form,
            reader.ends,
            decode,
            PartitionOrder(RowCodec(columns), form, snapshots, stored, partial(on_went_back, number)),
        )
        for number, source in enumerate(sources)
    ]


class CanonicalSource:
    """A partition in canonical form."""

    def __init__(
        self, source: Source, form: RecordForm, ends: Sequence[int], decode: Decode, order: PartitionOrder
    ) -> None:
        """`ends`: the barriers behind which records are read in another way."""
        self._source, self._form, self._ends, self._decode, self._order = source, form, ends, decode, order

    def entries(self) -> Iterator[TopicEntry]:
        """The source's entries that concern the table: barriers, changes, and invalid records without a `change`."""
        pairs = self._pairs()
        if self._form.has_tombstones:
            pairs = _without_tombstones(pairs)
        return (entry for _, entry in pairs if entry is not None)

    def extend(self) -> bool:
        """Extend the source."""
        return self._source.extend()

    def _pairs(self) -> Iterator[_Pair]:
        chunks = _chunks(self._source.entries(), self._ends)
        while window := list(islice(chunks, _AT_ONCE)):
            changes = [
                RecordChunk([(each.key, each.value) for each in entries if each.barrier is None], epoch)
                for entries, epoch in window
            ]
            for (entries, _), records in zip(window, map(iter, self._decode(changes)), strict=True):
                for entry in entries:
                    if entry.barrier is None:
                        yield entry, self._order.taken(entry, next(records))
                    else:
                        self._order.end_interval(entry)
                        yield entry, entry


_Pair = tuple[TopicEntry, TopicEntry | None]
"""A record as it came, and in canonical form; None where it is no change."""


def _chunks(entries: Iterator[TopicEntry], ends: Sequence[int]) -> Iterator[tuple[list[TopicEntry], int]]:
    """Entries in their order, some at a time, and the last one of `ends` that stands before them.

    None is empty, and none goes on behind one of these barriers.
    """
    chunk, size, epoch, left = list[TopicEntry](), 0, 0, deque(ends)
    for entry in entries:
        chunk.append(entry)
        size += len(entry.value or b"")
        is_end = bool(left) and entry.barrier is not None and int(entry.barrier) >= left[0]
        if len(chunk) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES or is_end:
            yield chunk, epoch
            chunk, size = [], 0
        if is_end:
            epoch = left.popleft()
    if chunk:
        yield chunk, epoch


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
            yield deleted[0], deleted[0]
            deleted = None
        if is_change and entry.value is None:
            yield entry, entry
        elif recoded is not None and recoded.change is not None and recoded.change.op is Op.DELETE:
            deleted = entry, recoded
        else:
            yield entry, recoded


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
        stored: dict[bytes | None, bytes],
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
        change, read = record.change, record.read
        if change is None:
            return entry._replace(fault=record.fault) if record.invalid else None
        if self._rule is not None:
            self._settle(self._rule)
            if self._rule.drops(change.key, change.op, read.place):
                return None
            if self._rule.went_back is not None:
                self._on_went_back(entry.offset, self._rule.went_back)
            if self._form.may_leave_values_out:
                change = self._filled(change, read.left_out)
        if change is None:
            return entry
        return entry.as_change(change, read.place, read.width, has_other_key=record.has_other_key)

    def _filled(self, change: RowChange, left_out: Sequence[int]) -> RowChange | None:
        """The change with the values of the row before; None where there is none."""
        if change.after is None:
            self._stored.pop(change.key, None)
            return change
        if left_out:
            stored = self._stored.get(change.key)
            if stored is None:
                return None
            before, row = self._rows.row(stored), list(self._rows.row(change.after))
            for index in left_out:
                row[index] = before[index]
            change = change._replace(after=self._rows.row_bytes(tuple(row)))
        self._stored[change.key] = change.after or b""
        return change
