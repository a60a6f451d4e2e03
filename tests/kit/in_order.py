"""A model of what lanes make of one partition: record by record, with all rows in memory."""

from __future__ import annotations

from dataclasses import replace

from schemas.position import Key
from schemas.records import Change, Row
from streaming.verify.records.order import RedeliveryRule
from tests.kit.service_reading import place_of
from tests.kit.upstream_record import UpstreamRecord


class InOrder:
    """The state of one partition; call `take` for each record, in order."""

    def __init__(self) -> None:
        self._redelivered = RedeliveryRule()
        self._rows: dict[Key, Row] = {}

    def take(self, key: Key, record: UpstreamRecord) -> Change | None:
        """The change with its left-out values filled in; None for no change, and for a redelivered one.

        Raises: LookupError for a value that is left out of a row that is not there.
        """
        change = record.change
        if change is None or self._redelivered.drops(key, change.op, place_of(record.position)):
            return None
        if change.after is None:
            self._rows.pop(key, None)
            return change
        after = list(change.after)
        for index in record.unchanged:
            after[index] = self._rows[key][index]
        self._rows[key] = tuple(after)
        return replace(change, after=tuple(after))
