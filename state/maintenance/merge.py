"""Merging files of the log: which ones, and one of several, in bounded memory.

A slice opens every file of the log, so there are few of them: files of about one size are merged as in a size-tiered
LSM tree, and large ones are left alone. What counts as large grows with the log, so that there are never many of those
either. No reader relies on an order of rows in a file; those of a vnode are adjacent, so that readers skip the others.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.table import TableSchema
from state.columns import EPOCH, OFFSET, VNODE, log_schema, within_vnodes
from state.replica import LOG_PATH, raw_bytes, write_log_parts
from state.storage import DataFile, Storage

LEAST_FILES = 16
"""Files of a tier that are worth a merge; a tier spans this factor in rows."""
MOST_FILES = 64
"""Files that one merge reads."""
MANY_FILES = 96
"""From this many on, files are merged whatever their sizes."""
LARGE_ROWS, LARGE_BYTES = 250_000, 64 << 20
"""A file of this many rows, or bytes in memory, is never merged again, unless it is a small part of the log."""
LARGE_SHARE = 1 / 32
PART_ROWS, PART_BYTES = 250_000, 64 << 20
"""The decoded rows that a merge has in memory at a time."""


@dataclass(frozen=True)
class Merge:
    """Files to be replaced by one with the same rows. A value that is pickled to the worker that does it."""

    storage: Storage
    table: TableSchema
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class Merged:
    """A merge that is done: the files it read and the one it wrote."""

    files: tuple[DataFile, ...]
    into: DataFile


def choose_merges(files: Sequence[DataFile], *, others: int = 0) -> list[tuple[DataFile, ...]]:
    """Groups of files worth merging, those of the smallest files first; all groups can be merged in parallel.

    `others` is the number of files of the log that may not be merged now; they count towards `MANY_FILES`.
    """
    large_rows = max(LARGE_ROWS, LARGE_SHARE * sum(file.rows for file in files))
    large_bytes = max(LARGE_BYTES, LARGE_SHARE * sum(map(raw_bytes, files)))
    small = [file for file in files if file.rows < large_rows and raw_bytes(file) < large_bytes]
    if len(files) + others > MANY_FILES:
        return _groups(sorted(small, key=lambda file: file.rows), large_rows, large_bytes)
    tiers: dict[int, list[DataFile]] = defaultdict(list)
    for file in small:
        tiers[int(math.log(max(file.rows, 1), LEAST_FILES))].append(file)
    full = [tier for _, tier in sorted(tiers.items()) if len(tier) >= LEAST_FILES]
    # In the order of time, because the compaction removes whole files from the log.
    ordered = (sorted(tier, key=lambda file: file.bounds[EPOCH]) for tier in full)
    return [group for tier in ordered for group in _groups(tier, large_rows, large_bytes)]


def _groups(files: Sequence[DataFile], most_rows: float, most_bytes: float) -> list[tuple[DataFile, ...]]:
    """Files in this order, as many together as one merge takes; a file that is left alone is no merge."""
    groups: list[list[DataFile]] = [[]]
    rows = size = 0
    for file in files:
        if (
            len(groups[-1]) == MOST_FILES
            or rows + file.rows > most_rows
            or size + raw_bytes(file) > most_bytes
        ):
            groups.append([])
            rows = size = 0
        groups[-1].append(file)
        rows += file.rows
        size += raw_bytes(file)
    return [tuple(group) for group in groups if len(group) > 1]


def merge_files(merge: Merge) -> Merged:
    """Write the one file. Raises: StateError when a file can't be read; OSError when none can be written."""
    into = write_log_parts(merge.storage, merge.table, _parts(merge), merge.files, "merged")
    return Merged(merge.files, into)


def _parts(merge: Merge) -> Iterator[pa.Table]:
    """The rows of all files, some vnodes at a time; where those are too large, in several parts."""
    bounds = [file.bounds[VNODE] for file in merge.files]
    vnodes = range(min(low for low, _ in bounds), max(high for _, high in bounds) + 1)
    rows, size = sum(file.rows for file in merge.files), sum(map(raw_bytes, merge.files))
    count = min(max(-(-rows // PART_ROWS), -(-size // PART_BYTES), 1), len(vnodes))
    ends = [vnodes.start + len(vnodes) * number // count for number in range(count + 1)]
    for first, end in itertools.pairwise(ends):
        paths = [
            file.path
            for file in merge.files
            if file.bounds[VNODE][0] < end and first <= file.bounds[VNODE][1]
        ]
        for part in merge.storage.read_parquet_parts(
            LOG_PATH,
            paths,
            log_schema(merge.table),
            wanted=within_vnodes(range(first, end)),
            part_bytes=PART_BYTES,
            fills=merge.table.fills,
        ):
            yield part.sort_by([(VNODE, "ascending"), (OFFSET, "ascending")])
