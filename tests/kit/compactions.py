"""Compactions and merges in this process, and a log to do them on."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa

from schemas.records import Op
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.maintenance.compaction import CompactionPart, CompactionResult, compact_part
from state.maintenance.merge import Merge, Merged, merge_files
from state.replica import Replica, write_log_file
from tests.kit.tables import table

TABLE = table(vnode_count=8)


def no_compaction(parts: object) -> NoReturn:
    raise AssertionError("nothing is to be folded")


def compact_here(parts: Sequence[CompactionPart]) -> CompactionResult:
    return functools.reduce(operator.or_, map(compact_part, parts), CompactionResult())


def no_merge(merges: object) -> NoReturn:
    raise AssertionError("nothing is to be merged")


def merge_here(merges: Sequence[Merge]) -> list[Merged]:
    return [merge_files(merge) for merge in merges]


def append(replica: Replica, epoch: int, count: int = 1, files: int = 1) -> None:
    """A batch with so many changes, in so many files."""
    row = {VNODE: 0, EPOCH: epoch, PARTITION: 0, OP: Op.INSERT}
    numbers = range(epoch * 100, epoch * 100 + count)
    rows = pa.Table.from_pylist([{**row, OFFSET: n, "id": n} for n in numbers], schema=log_schema(TABLE))
    size = count // files
    parts = [rows.slice(first, size) for first in range(0, count, size)]
    replica.append([write_log_file(replica.storage, part, "log") for part in parts], epoch)
