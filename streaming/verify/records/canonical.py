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
from schemas.formats.protocol import Format
from schemas.table import Column
from streaming.verify.history import Entry, Source

CANONICAL = ChangeFormat()


def canonical(
    sources: Iterable[Source], format_: Format, columns: Sequence[Column], key_columns: Sequence[Column]
) -> list[Source]:
    """Sources of a topic, each in canonical form; those that have it already are left as they are."""
    if format_ == CANONICAL:
        return list(sources)
    return [_Recoded(source, format_, columns, key_columns) for source in sources]


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

    def entries(self) -> Iterator[Entry]:
        """Those of the source that say anything of the table."""
        return (entry for entry in map(self._recoded, self.source.entries()) if entry is not None)

    def extend(self) -> bool:
        """As the source."""
        return self.source.extend()

    def _recoded(self, entry: Entry) -> Entry | None:
        if entry.barrier is not None or entry.key is None:
            return entry
        given = entry.key, entry.value
        try:
            if entry.value is None and not self.format.tombstones:
                return Entry(
                    entry.offset, self._keys.encode(self._rows.read_key(entry.key)), None, given=given
                )
            record = self._rows.read_record(*given)
            if record.change is None:
                return None
            key = self._rows.read_key(entry.key)
            change = self._in_order.take(key, record) if self._has_order else record.change
        except (InputError, LookupError):
            return Entry(entry.offset, entry.key, b"", given=given)
        if change is None:
            return None
        return Entry(entry.offset, self._keys.encode(key), self._changes.encode(change), given=given)

    @property
    def _has_order(self) -> bool:
        return self.format.comes_again or self.format.may_be_unchanged
