"""Columns of the table in the frames of a lane's records, and records whose frames have lost one.

A frame may be older than the first one with a column: then it has not lost it. So what counts is whether an earlier
record of the partition had it, and of these a lane knows those of earlier batches, which its plan has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np

from schemas.error_table import expectation
from schemas.errors import Code
from schemas.kinds.columns import lost_column_text
from schemas.table import TableSchema
from state.values.seen import LaneSeen, Seen
from streaming.lane.faults import MOST_FAULTS, Fault
from streaming.source.decoded import LACKING, Changes
from streaming.source.records import Bools


class FramesSeen:
    """Takes the records of one lane and batch; call it with each part. `start`: by partition, before the batch."""

    def __init__(self, table: TableSchema, start: Mapping[int, Seen]) -> None:
        self._columns = frozenset(each.name for each in table.expected_columns)
        self._start = start
        self._found: dict[int, frozenset[str]] = {}

    def __call__(self, changes: Changes) -> list[Fault]:
        """The records whose frames lack a column that earlier ones of the partition had; the first few of them."""
        if not len(changes) or LACKING not in changes.rows.column_names:
            return []
        return list(islice(self._lost(changes), MOST_FAULTS))

    def added_to(self, seen: Mapping[int, LaneSeen]) -> dict[int, LaneSeen]:
        """This state of the lane's partitions, with the columns of its frames."""
        found = {
            number: replace(seen.get(number, LaneSeen()), columns=columns)
            for number, columns in self._found.items()
        }
        return {**seen, **found}

    def _lost(self, changes: Changes) -> Iterator[Fault]:
        for number, lacking, rows in _by_frame(changes):
            self._found[number] = self._found.get(number, frozenset()) | (self._columns - lacking)
            lost = sorted(self._start.get(number, Seen()).columns & lacking & self._columns)
            for row in np.flatnonzero(rows).tolist() if lost else ():
                yield Fault(
                    number,
                    int(changes.offsets[row]),
                    Code.SCHEMA_INCOMPATIBLE,
                    lost_column_text(lost[0]),
                    expectation(Code.SCHEMA_INCOMPATIBLE),
                )


def _by_frame(changes: Changes) -> Iterator[tuple[int, frozenset[str], Bools]]:
    """The partition of records with the same frame, the columns that it lacks, and flags for these records."""
    frames = changes.rows[LACKING].combine_chunks().dictionary_encode()
    codes, partitions = frames.indices.fill_null(-1).to_numpy(zero_copy_only=False), changes.partitions
    for code, lacking in enumerate(frames.dictionary.to_pylist()):
        own = codes == code
        for number in np.unique(partitions[own]).tolist():
            yield number, frozenset(filter(None, lacking.split(","))), own & (partitions == number)
