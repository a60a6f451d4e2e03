"""The rows of a chunk as of a barrier: those that were read, with the events over them that they do not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.records import Op
from state.values.order import changes_of_key, sort_order

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """n events in the order of each key: the table's columns (of a DELETE its key is enough), and what is left out.

    `left_out[column]` are the events, by index, that leave a column's value out as it is what it was; `column` is an
    index, too.
    """

    ops: npt.NDArray[np.int8]
    rows: pa.Table
    left_out: dict[int, Indices]


@dataclass(frozen=True, slots=True)
class Folded:
    """`rows` in key order. `lacking` are events, by index, that leave a value out of a row that does not exist."""

    rows: pa.Table
    lacking: Indices


def folded(stored: pa.Table, events: Events, key_names: Sequence[str]) -> Folded:
    """The last row of each key that has one. `stored` has each key once, and the columns of `events.rows`."""
    count, both = len(stored), pa.concat_tables([stored, events.rows.cast(stored.schema)]).combine_chunks()
    keys = [both[name].combine_chunks() for name in key_names]
    order = sort_order(keys).to_numpy().astype(np.int64)  # stable: the stored row, then its events
    firsts = changes_of_key([key.take(pa.array(order)) for key in keys])
    before = np.full(len(both), -1, dtype=np.int64)
    before[order[1:]] = np.where(firsts[1:], -1, order[:-1])
    is_row = np.concatenate([np.ones(count, np.bool_), events.ops != Op.DELETE])
    lasts = order[np.append(firsts[1:], True)] if len(both) else order
    lasts = lasts[is_row[lasts]]
    columns, lacking = dict(zip(both.column_names, both.columns, strict=True)), [np.zeros(0, np.int64)]
    for column, left_out in events.left_out.items():
        sources = _sources(before, is_row, count + left_out)
        lacking.append(left_out[sources[count + left_out] < 0])
        places = pa.array(np.maximum(sources, 0))
        columns[both.column_names[column]] = both.column(column).take(places)
    rows = pa.table(columns, schema=stored.schema).take(pa.array(lasts))
    return Folded(rows, np.unique(np.concatenate(lacking)))


def _sources(before: Indices, is_row: npt.NDArray[np.bool_], without: Indices) -> Indices:
    """Where each row's value comes from; -1 where the row before is none. Several in a row may leave it out."""
    origin = np.arange(len(before) + 1)
    previous = before[without]
    origin[without] = np.where((previous >= 0) & is_row[previous], previous, -1)
    origin[-1] = len(before)
    origin = np.where(origin < 0, len(before), origin)
    while not (origin[origin] == origin).all():
        origin = origin[origin]
    return np.where(origin[:-1] == len(before), -1, origin[:-1])
