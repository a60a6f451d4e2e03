"""Histories as the bytes of a topic, and what `verify` says of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.errors import Code
from schemas.kinds.projection import output_columns
from schemas.records import Barrier, BarrierKind, VnodeProgress
from schemas.table import TableSchema
from streaming.reading.entries import RecordFault, RowChange, Source
from streaming.reading.records.forms import CHANGE_FORM
from streaming.reading.values.avro_bytes import RowCodec
from streaming.reading.values.invalid import InvalidRecordError
from streaming.verify.checker import Checker
from streaming.verify.findings import Report
from streaming.verify.history import TopicEntry
from streaming.verify.records.canonical import canonical
from streaming.verify.records.rows import OutputView
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.histories import History, Item
from tests.kit.masks import HASH_KEY


@dataclass
class ListSource:
    """A partition in memory."""

    items: Sequence[TopicEntry]

    def entries(self) -> Iterator[TopicEntry]:
        yield from self.items

    def extend(self) -> bool:
        return False

    def settle(self) -> bool:
        return False


def numbered(entries: Iterable[TopicEntry]) -> list[ListSource]:
    """A topic of one partition: entries in their order, by offsets from 0 on."""
    return [ListSource([entry._replace(offset=offset) for offset, entry in enumerate(entries)])]


def closing(barrier: Barrier) -> TopicEntry:
    """A barrier as it lies in a partition."""
    return TopicEntry(0, None, encode_barrier(barrier), barrier_header(barrier))


def barrier(number: int, *progress: VnodeProgress) -> TopicEntry:
    """A barrier of a topic of one partition, whose epoch follows from its number."""
    kind = BarrierKind.CHECKPOINT
    return closing(Barrier(number << 16, (number - 1) << 16, kind, 1, 0, progress=progress))


def encode(items: Sequence[Item], key_codec: KeyCodec, codec: ChangeCodec) -> list[TopicEntry]:
    """Records as they lie in a partition; each barrier has a gap behind it, as transactions leave it."""
    entries: list[TopicEntry] = []
    offset = 0
    for item in items:
        if item.barrier is not None:
            entries.append(closing(item.barrier)._replace(offset=offset))
            offset += 2
        else:
            assert item.key is not None
            assert item.change is not None
            key = item.key if item.sent_key is None else item.sent_key
            entries.append(TopicEntry(offset, key_codec.encode(key), codec.encode(item.change)))
            offset += 1
    return entries


def upstream_items(history: History) -> list[list[Item]]:
    count = len(history.steps[0].partitions)
    return [
        [item for step in history.steps for item in (*step.partitions[number], Item(barrier=step.barrier))]
        for number in range(count)
    ]


Entries = list[list[TopicEntry]]
"""A topic's records, by partition."""


def encoded(history: History) -> tuple[Entries, Entries]:
    """The upstream and the output as bytes."""
    key_codec = KeyCodec(history.table.key_columns)
    sent_codec = KeyCodec(view_of(history).key_columns)
    upstream_codec = ChangeCodec(history.table.columns)
    output_codec = ChangeCodec(output_columns(history.columns, history.table))
    return (
        [encode(items, key_codec, upstream_codec) for items in upstream_items(history)],
        [encode(items, sent_codec, output_codec) for items in history.output],
    )


def view_of(history: History) -> OutputView:
    """The rows as its job shows them."""
    return OutputView(history.table, history.columns, history.condition, hash_key=HASH_KEY, key=history.key)


@dataclass
class RowsAsChanges:
    """A partition of changes whose rows have no identity: each is an INSERT, with the key that its record has."""

    source: Source
    codec: RowCodec

    def entries(self) -> Iterator[TopicEntry]:
        for entry in self.source.entries():
            yield entry if entry.barrier is not None else self._read(entry)

    def _read(self, entry: TopicEntry) -> TopicEntry:
        try:
            row = self.codec.change(entry.value or b"").change.after
        except InvalidRecordError as reason:
            return entry._replace(
                fault=RecordFault.of(reason.as_input(Code.CHANGE_MALFORMED, "a value", None))
            )
        assert row is not None
        return entry._replace(change=RowChange(entry.key, None, self.codec.row_bytes(row)))

    def extend(self) -> bool:
        return self.source.extend()


def of_changes(rows: TableSchema | OutputView, *sources: Source) -> list[Source]:
    """Partitions of the format `change` as the checker reads them."""
    if not rows.key_columns:
        codec = RowCodec(rows.columns)
        return [RowsAsChanges(source, codec) for source in sources]
    return canonical(sources, CHANGE_FORM, rows.columns, rows.key_columns)


def judge(history: History) -> Report:
    """The report of `verify` on a history, without a broker."""
    upstream, output = encoded(history)
    return Checker(
        history.table,
        view_of(history),
        ("up", of_changes(history.table, *map(ListSource, upstream))),
        ("out", of_changes(view_of(history), *map(ListSource, output))),
        from_now=history.from_now,
    ).run()
