"""Records of any format in the one form that the judge computes with: keys and changes in Avro, as bytes.

The judge's algebra of bytes (`streaming.verify.records.rows`) shares nothing with what it judges. A topic of another
format than `change` is brought into that form here, by whole columns where its format has a reader for them, or else
record by record by the format's strict twin; what wrote the topic has no part in it. What the twin refuses has no value
in canonical form, which every rule takes for a record at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from schemas.avro.codec import ChangeCodec, KeyCodec
from schemas.errors import InputError
from schemas.formats.change import ChangeFormat
from schemas.formats.protocol import Format, Images, OutputFormat
from schemas.records import Op
from schemas.table import Column
from streaming.verify.history import Entry, Source
from streaming.verify.records.by_columns import CanonicalColumns
from streaming.verify.records.in_order import (
    ChangesInOrder,
    OnWentBack,
    Recoded,
    SnapshotRows,
    at_fault,
)
from streaming.verify.records.redelivered import WentBack
from streaming.verify.records.rows import op_of

CANONICAL = ChangeFormat()


def canonical(
    sources: Iterable[Source],
    format_: Format,
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    on_went_back: Callable[[int, int, WentBack], None] = lambda partition, offset, found: None,
) -> list[Source]:
    """Sources of a topic by partition, each in canonical form; those that have it already are left as they are.

    `on_went_back`: called with partition and offset of a record whose log has gone back, and what was found.
    """
    if format_ == CANONICAL:
        return list(sources)
    if format_.images is Images.ROWS:
        return [_Rows(source, format_, columns) for source in sources]
    snapshots: SnapshotRows = {}
    return [
        _Recoded(source, format_, columns, key_columns, snapshots, partial(on_went_back, number))
        for number, source in enumerate(sources)
    ]


@dataclass
class _Rows:
    """Of rows without identity, whose keys stay what they are."""

    source: Source
    format: Format
    columns: Sequence[Column]

    def __post_init__(self) -> None:
        self._rows, self._changes = self.format.rows(self.columns, ()), ChangeCodec(self.columns)

    def entries(self) -> Iterator[Entry]:
        """Without those that are no row."""
        return (entry for entry in map(self._recoded, self.source.entries()) if entry is not None)

    def extend(self) -> bool:
        """As the source."""
        return self.source.extend()

    def _recoded(self, entry: Entry) -> Entry | None:
        if entry.barrier is not None:
            return entry
        given = entry.key, entry.value
        try:
            change = self._rows.read_record(*given).change
        except InputError as error:
            return at_fault(entry, error)
        return None if change is None else entry._replace(value=self._changes.encode(change), given=given)


@dataclass
class _Recoded:
    source: Source
    format: Format
    columns: Sequence[Column]
    key_columns: Sequence[Column]
    snapshots: SnapshotRows
    on_went_back: OnWentBack

    def __post_init__(self) -> None:
        self._rows = self.format.rows(self.columns, self.key_columns)
        self._changes, self._keys = ChangeCodec(self.columns), KeyCodec(self.key_columns)
        order = ChangesInOrder(
            self._changes,
            fills=self.format.may_be_unchanged,
            snapshots=self.snapshots,
            on_went_back=self.on_went_back,
        )
        self._in_order = order if self.format.comes_again or self.format.may_be_unchanged else None
        self._deleted: _Pair | None = None
        self._has_tombstones = isinstance(self.format, OutputFormat) and self.format.tombstone_follows
        read = self.format.column_reader(self.columns, self.key_columns)
        self._by_columns = None if read is None else CanonicalColumns(read, self.columns, self.key_columns)

    def entries(self) -> Iterator[Entry]:
        """Those of the source that say anything of the table."""
        pairs = self._without_tombstones(self._pairs()) if self._has_tombstones else self._pairs()
        return (entry for _, entry in pairs if entry is not None)

    def extend(self) -> bool:
        """As the source."""
        return self.source.extend()

    def _pairs(self) -> Iterator[_Pair]:
        for chunk in _chunks(self.source.entries()):
            recoded = iter(self._recoded_together([entry for entry in chunk if self._is_change(entry)]))
            for entry in chunk:
                if entry.barrier is not None and self._in_order is not None:
                    self._in_order.end_interval(entry.barrier)
                if self._is_change(entry):
                    yield entry, self._ordered(next(recoded))
                elif entry.barrier is None and entry.key is None:
                    yield entry, self._recoded(entry).entry
                else:
                    yield entry, entry

    def _ordered(self, recoded: Recoded) -> Entry | None:
        return recoded.entry if self._in_order is None else self._in_order.take(recoded)

    def _without_tombstones(self, pairs: Iterable[_Pair]) -> Iterator[_Pair]:
        """Each DELETE with the record behind it that repeats its key, without that one. Any other one is at fault."""
        for entry, recoded in pairs:
            if self._deleted is not None:
                deleted, self._deleted = self._deleted, None
                if entry.barrier is None and (entry.key, entry.value) == (deleted[0].key, None):
                    yield deleted
                    continue
                yield deleted[0], at_fault(deleted[0])
            if entry.barrier is None and entry.value is None:
                yield entry, at_fault(entry)
            elif entry.barrier is None and recoded is not None and _is_delete(recoded):
                self._deleted = entry, recoded
            else:
                yield entry, recoded

    def _recoded_together(self, entries: Sequence[Entry]) -> list[Recoded]:
        """By columns, but for those that have to be read by themselves."""
        if self._by_columns is not None and (found := self._by_columns.recoded(entries)) is not None:
            return found
        if self._by_columns is None or len(entries) <= _FEW:
            return [self._recoded(entry) for entry in entries]
        half = len(entries) // 2
        return [*self._recoded_together(entries[:half]), *self._recoded_together(entries[half:])]

    def _is_change(self, entry: Entry) -> bool:
        return (
            entry.barrier is None
            and entry.key is not None
            and (entry.value is not None or not self._has_tombstones)
        )

    def _recoded(self, entry: Entry) -> Recoded:
        given = entry.key or b"", entry.value
        try:
            if entry.value is None and not self.format.may_be_null:
                return Recoded(entry._replace(key=self._key(given[0]), value=None, given=given))
            record = self._rows.read_record(*given)
            if record.change is None:
                return Recoded(None)
            own = entry._replace(
                key=self._key(given[0]), value=self._changes.encode(record.change), given=given
            )
        except InputError as error:
            return Recoded(at_fault(entry, error))
        return Recoded(own, record.position, record.unchanged)

    def _key(self, data: bytes) -> bytes:
        return self._keys.encode(self._rows.read_key(data))


_Pair = tuple[Entry, Entry | None]
"""A record as it came, and in canonical form; None where it is no change."""
_CHUNK_RECORDS, _CHUNK_BYTES = 2_000, 4 << 20
_FEW = 60
"""Records that are read one by one rather than in halves, if one of them has to be."""


def _chunks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Entries in their order, some at a time; none is empty."""
    chunk, size = list[Entry](), 0
    for entry in entries:
        chunk.append(entry)
        size += len(entry.value or b"")
        if len(chunk) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _is_delete(recoded: Entry) -> bool:
    return op_of(recoded.value or b"") is Op.DELETE
