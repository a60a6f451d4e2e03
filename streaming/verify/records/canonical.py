"""Records of any format in the one form that the judge computes with: keys and changes in Avro, as bytes.

The judge's algebra of bytes (`streaming.verify.records.rows`) shares nothing with what it judges. A topic of another
format than `change` is brought into that form here, record by record, by the format's strict twin; the columns that
wrote or read the topic have no part in it. What the twin refuses has no value in canonical form, which every rule takes
for a record at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from schemas.avro.codec import ChangeCodec, KeyCodec
from schemas.errors import InputError
from schemas.formats.change import ChangeFormat
from schemas.formats.in_order import InOrder
from schemas.formats.protocol import Format, Images, OutputFormat
from schemas.records import Op
from schemas.table import Column
from streaming.verify.history import Entry, Source

CANONICAL = ChangeFormat()


def canonical(
    sources: Iterable[Source], format_: Format, columns: Sequence[Column], key_columns: Sequence[Column]
) -> list[Source]:
    """Sources of a topic, each in canonical form; those that have it already are left as they are."""
    if format_ == CANONICAL:
        return list(sources)
    if format_.images is Images.ROWS:
        return [_Rows(source, format_, columns) for source in sources]
    return [_Recoded(source, format_, columns, key_columns) for source in sources]


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
        except InputError:
            return entry._replace(value=b"", given=given)
        return None if change is None else entry._replace(value=self._changes.encode(change), given=given)


@dataclass
class _Recoded:
    source: Source
    format: Format
    columns: Sequence[Column]
    key_columns: Sequence[Column]

    def __post_init__(self) -> None:
        self._rows = self.format.rows(self.columns, self.key_columns)
        self._changes, self._keys = ChangeCodec(self.columns), KeyCodec(self.key_columns)
        self._in_order = InOrder()
        self._deleted: Entry | None = None

    def entries(self) -> Iterator[Entry]:
        """Those of the source that say anything of the table."""
        entries = self.source.entries()
        if isinstance(self.format, OutputFormat) and self.format.tombstone_follows:
            entries = self._without_tombstones(entries)
        return (entry for entry in map(self._recoded, entries) if entry is not None)

    def _without_tombstones(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Each DELETE with the record behind it that repeats its key, without that one. Any other one is at fault."""
        for entry in entries:
            if self._deleted is not None:
                deleted, self._deleted = self._deleted, None
                if entry.barrier is None and (entry.key, entry.value) == (deleted.key, None):
                    yield deleted
                    continue
                yield deleted._replace(value=b"")
            if entry.barrier is None and entry.value is None:
                yield entry._replace(value=b"")
            elif self._is_delete(entry):
                self._deleted = entry
            else:
                yield entry

    def _is_delete(self, entry: Entry) -> bool:
        if entry.barrier is not None or entry.key is None:
            return False
        try:
            change = self._rows.read_record(entry.key, entry.value).change
        except InputError:
            return False
        return change is not None and change.op is Op.DELETE

    def extend(self) -> bool:
        """As the source."""
        return self.source.extend()

    def _recoded(self, entry: Entry) -> Entry | None:
        if entry.barrier is not None or entry.key is None:
            return entry
        given = entry.key, entry.value
        try:
            if entry.value is None and not self.format.may_be_null:
                key = self._keys.encode(self._rows.read_key(entry.key))
                return entry._replace(key=key, value=None, given=given)
            record = self._rows.read_record(*given)
            if record.change is None:
                return None
            row_key = self._rows.read_key(entry.key)
            change = self._in_order.take(row_key, record) if self._has_order else record.change
        except (InputError, LookupError):
            return entry._replace(value=b"", given=given)
        if change is None:
            return None
        value = self._changes.encode(change)
        return entry._replace(key=self._keys.encode(row_key), value=value, given=given)

    @property
    def _has_order(self) -> bool:
        return self.format.comes_again or self.format.may_be_unchanged
