"""The names of the fields in an upstream's newest rows, read apart from the batches, a few records every few seconds.

So no batch pays for it: lanes take columns apart, and what a record lacks is null there. Where records come faster than
they are looked at, the newest of them are; those behind them are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from schemas.errors import BackfillError
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.row_names import LOST_AFTER, FieldHistory, FieldsSeen, row_names
from schemas.table import TableSchema
from streaming.kafka.barriers import is_marked
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.topics import Watermarks

OF_A_LOOK = 1_000
"""Records, of all partitions."""

_log = structlog.get_logger(__name__)


class NewestRows:
    """The newest rows of one topic; for one thread. `format_` looks up schemas. `close` it at the end."""

    def __init__(self, kafka: KafkaSettings, topic: str, format_: UpstreamFormat, table: TableSchema) -> None:
        self._kafka, self._topic = kafka, topic
        self._names, self._history = row_names(format_), FieldHistory(table)
        self._next: list[int] = []
        self._reader: RangeReader | None = None
        self._logged = FieldsSeen()

    def look(self, marks: Sequence[Watermarks]) -> FieldsSeen:
        """Take the newest rows up to these ends into account, and log what has changed.

        Trouble of broker or registry is for those who read the topic to tell.
        """
        share = max(1, OF_A_LOOK // max(1, len(marks)))
        known = [*self._next, *[0] * (len(marks) - len(self._next))]
        ranges = {
            number: (max(known[number], mark.earliest, mark.stable - share), mark.stable)
            for number, mark in enumerate(marks)
        }
        if self._names is not None and any(start < end for start, end in ranges.values()):
            try:
                self._read(ranges)
            except BackfillError as error:
                _log.debug("newest_rows_not_read", upstream=self._topic, code=error.code)
        self._next = [mark.stable for mark in marks]
        found = self._history.seen()
        _log_changes(self._topic, self._logged, found)
        self._logged = found
        return found

    def _read(self, ranges: dict[int, tuple[int, int]]) -> None:
        assert self._names is not None
        if self._reader is None:
            self._reader = RangeReader(self._kafka)
        for chunk in self._reader.read(self._topic, ranges):
            for message in chunk:
                value = message.value()
                if not value or is_marked(message):
                    continue
                names = self._names(value)
                if names is not None:
                    self._history.add(names)

    def close(self) -> None:
        """Leave the broker; idempotent."""
        if self._reader is not None:
            self._reader.close()


def _log_changes(topic: str, before: FieldsSeen, now: FieldsSeen) -> None:
    for name in sorted(set(now.lost) - set(before.lost)):
        _log.warning(
            "column_lost",
            upstream=topic,
            column=name,
            found=f"none of the last {LOST_AFTER:,} rows that were looked at has it",
            next_step="see whether the upstream's table still has the column; its rows are null without it",
        )
    for name in sorted(set(now.never) - set(before.never)):
        _log.warning(
            "column_never_seen",
            upstream=topic,
            column=name,
            found=f"none of {now.rows:,} rows that were looked at has it",
            next_step="correct the column's name or its `field`; if rows may lack it, give it `fill: null`",
        )
    for name in sorted({*before.lost, *before.never} - {*now.lost, *now.never}):
        _log.info("column_is_there", upstream=topic, column=name)
    names = [name for name in now.undeclared if name not in set(before.undeclared)]
    if names or now.more > before.more:
        _log.info("fields_not_declared", upstream=topic, names=names, more=now.more)
