"""The records of a history as they are judged where positions fall."""

from __future__ import annotations

from collections.abc import Iterator, Set

from schemas.formats.protocol import Format
from schemas.formats.registry import DEFAULT
from schemas.records import RecordId
from streaming.core.redelivery import Logged
from streaming.protocol.lanes.redelivery import Ranges
from streaming.source.direct_read import LoggedRecords, logged_in
from tests.simulation.changelog import Changelog


class SimulatedLogged(LoggedRecords):
    """Of the whole changelog, whatever has arrived: a batch has."""

    changelog: Changelog

    def __init__(self, changelog: Changelog) -> None:
        object.__setattr__(self, "changelog", changelog)

    def read(self, ranges: Ranges, format_: Format, skipped: Set[RecordId], epoch: int) -> Iterator[Logged]:
        table = self.changelog.table
        encoder = DEFAULT.keys(table.key_columns)
        assert encoder is not None
        for each in sorted(
            logged_in(self.changelog.rows, table.primary_key, encoder), key=lambda each: each[:2]
        ):
            first, end = ranges.get(each.partition, (0, 0))
            if first <= each.offset < end and (each.partition, each.offset) not in skipped:
                yield each
