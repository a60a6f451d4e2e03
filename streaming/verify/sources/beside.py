"""Barriers of a topic of their own, merged with the data: each comes behind the last record of its interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from schemas.avro.codec import encode_barrier
from schemas.json.barriers import decode_beside
from streaming.verify.findings import Place
from streaming.verify.history import Entry, Source


class DataSource(Source, Protocol):
    """The data, whose end goes by that of the barriers."""

    def settle(self) -> bool:
        """Move the end behind all that is in the partition now, once that is decided; whether it has moved."""


class Merged:
    """One partition of the data and that of its barriers, as a `Source`. `topic` and `partition` are the barriers'.

    `begin`: the first offset of the data that counts. Barriers that end before it are left out.
    """

    def __init__(
        self, data: DataSource, barriers: Source, topic: str, partition: int, *, begin: int = 0
    ) -> None:
        self._data, self._barriers, self._begin = data, barriers, begin
        self._topic, self._partition = topic, partition
        self._records = data.entries()
        self._held: Entry | None = None

    def entries(self) -> Iterator[Entry]:
        """The barriers, each behind the data that it closes, and in the end the data that none closes.

        Raises: InputError for a record of the barrier topic that is marked as a barrier and is none.
        """
        for record in self._barriers.entries():
            if record.barrier is None:
                continue
            where = str(Place(self._topic, self._partition, record.offset))
            found = decode_beside(
                record.barrier, record.key, record.value, partition=self._partition, where=where
            )
            if found.end < self._begin:
                continue
            yield from self._below(found.end)
            value = encode_barrier(found.barrier)
            yield Entry(record.offset, None, value, record.barrier, full=found.barrier.full)
        yield from self._below(None)

    def _below(self, end: int | None) -> Iterator[Entry]:
        """The data before an offset; the first record behind it is held for the next interval."""
        while True:
            record = self._held or next(self._records, None)
            self._held = None
            if record is None:
                return
            if end is not None and record.offset >= end:
                self._held = record
                return
            yield record._replace(barrier=None)  # such a header is the owner's

    def extend(self) -> bool:
        """The barriers, as far as they have grown, with the data that these close."""
        grown = self._barriers.extend()
        if grown and self._data.settle():
            self._records = self._data.entries()
        return grown
