"""Offsets of the upstream that held no record when they were looked at: `upstream/empty.json`.

What is at an offset never changes, so what was seen once holds for good. It is kept because the log
forgets it: once retention has deleted these offsets, an end of a transaction can't be distinguished from a lost record.
The file is no necessary part of the state: without it DATA_LOST is reported where there may be no loss.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from state.storage import Storage

_FOLDER, _NAME = "upstream", "empty.json"


@dataclass(frozen=True, slots=True)
class EmptyRange:
    """No committed record is in [first, end) of a partition; `is_full`: one is, or was, at the end."""

    first: int
    end: int
    is_full: bool = False


class EmptyRanges:
    """The empty ranges that a state keeps, at most one for each partition."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> dict[int, EmptyRange]:
        """By partition; nothing for a file that is missing or damaged."""
        if not self._storage.exists(_FOLDER, _NAME):
            return {}
        with self._storage.filesystem.open_input_stream(self._storage.path(_FOLDER, _NAME)) as file:
            data = file.read()
        with suppress(ValueError, TypeError, AttributeError):
            return {int(number): EmptyRange(*each) for number, each in json.loads(data).items()}
        return {}

    def write(self, ranges: Mapping[int, EmptyRange]) -> None:
        """Keep these in place of what was kept before."""
        kept = {number: (each.first, each.end, each.is_full) for number, each in ranges.items()}
        self._storage.write_file(json.dumps(kept).encode(), _FOLDER, _NAME)
