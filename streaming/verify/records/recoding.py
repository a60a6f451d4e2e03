"""Keys and values of any form brought into canonical form: keys and changes in Avro, as bytes.

That is most of the work of a judgement, so several processes do it where there are many records. One takes half a
second to start. They are spawned, as a fork would take librdkafka's locks but not its threads. What waits for its turn
is bounded: some chunks a partition.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, Self

from schemas.errors import InputError
from schemas.table import Column
from streaming.reading.entries import RecordFault, TopicEntry
from streaming.reading.records.forms import RecordForm, RowImages
from streaming.reading.records.logs import PlaceInLog
from streaming.reading.records.reader import reader_of
from streaming.reading.values.avro_bytes import RowCodec
from streaming.reading.values.avro_fields import schema_id_of

Pairs = Sequence[tuple[bytes | None, bytes | None]]
"""Keys and values."""
_AHEAD = 2
"""Chunks of a partition that are decoded before they are asked for."""
WORTH_PROCESSES = 100_000
"""Records that keep one process busy for some seconds."""


class CanonicalRecord(NamedTuple):
    """A key and a change in canonical form, by what its record has of them.

    `value` is None for a record that says nothing of the table. For an invalid one it is empty, the key is as it came,
    and `fault` says why. `left_out`, `place` and `width` are those of `ReadRecord`.
    """

    key: bytes | None
    value: bytes | None = None
    fault: RecordFault | None = None
    left_out: tuple[int, ...] = ()
    place: PlaceInLog | None = None
    width: int | None = None


class CanonicalReader:
    """Brings keys and values of one form into canonical form."""

    def __init__(self, form: RecordForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._form, self._columns, self._key_columns = form, tuple(columns), tuple(key_columns)
        self.ends = sorted({former.epoch for column in columns for former in column.read_as})
        """Barriers at which columns got other names in records."""
        self._former = dict[int, CanonicalReader]()
        self._reader = reader_of(form, columns, key_columns)
        self._rows, self._keys = RowCodec(columns), RowCodec(key_columns)
        self._has_identity = form.rows_before is not RowImages.NO_IDENTITY

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
        try:
            record = self._reader.record(key, value)
            if record.change is None:
                return CanonicalRecord(None)
            own_key = (
                key if record.key is None or not self._has_identity else self._keys.row_bytes(record.key)
            )
        except InputError as error:
            return CanonicalRecord(key, b"", RecordFault.of(error))
        change = self._rows.change_bytes(record.change)
        return CanonicalRecord(own_key, change, None, record.left_out, record.place, record.width)


class EntryChunk(NamedTuple):
    """Entries of a partition, and the barrier that stands before them."""

    entries: Sequence[TopicEntry]
    epoch: int


Chunks = Iterator[EntryChunk]
Decoded = Iterator[tuple[TopicEntry, CanonicalRecord | None]]
"""Each entry with what it is in canonical form, None for a barrier."""
Decode = Callable[[Chunks], Decoded]
Decoding = Callable[[CanonicalReader], Decode]
"""Gives what decodes the partitions of a topic, each from its own chunks."""


def in_process(reader: CanonicalReader) -> Decode:
    """Decodes in this process."""

    def decode(chunks: Chunks) -> Decoded:
        for entries, epoch in chunks:
            read = reader.behind(epoch).read
            for entry in entries:
                yield entry, None if entry.barrier is not None else read(entry.key, entry.value)

    return decode


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
        """Decodes there, some chunks ahead of who asks."""
        pickled = cache(CanonicalReader.for_other_process)

        def decode(chunks: Chunks) -> Decoded:
            waiting = deque[tuple[Sequence[TopicEntry], Future[list[CanonicalRecord]]]]()
            for entries, epoch in chunks:
                pairs = [(entry.key, entry.value) for entry in entries if entry.barrier is None]
                own = reader.behind(epoch)
                future = self._pool.submit(_read, pickled(own), own.schemas_of(pairs), pairs)
                waiting.append((entries, future))
                if len(waiting) > _AHEAD:
                    yield from _zipped(*waiting.popleft())
            while waiting:
                yield from _zipped(*waiting.popleft())

        return decode


def _zipped(entries: Sequence[TopicEntry], future: Future[list[CanonicalRecord]]) -> Decoded:
    records = iter(future.result())
    for entry in entries:
        yield entry, None if entry.barrier is not None else next(records)


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
