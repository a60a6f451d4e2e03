"""Totals of topics of changes, in constant memory: for tables whose keys `verify` can't hold.

With the row before and after in every change, the rows that are there now have a count and a sum of hashes that follow
from the changes alone, in any order: an INSERT adds its row, a DELETE takes its row away, an UPDATE does both. So an
output that lacks a row, has one twice, or one with another value, adds up to something else than its upstream. What it
can't see is order: a change that came too late, or before the row that it goes on from. That is for the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from xxhash import xxh3_64_intdigest

from schemas.avro.columnar import encode_records
from schemas.avro.columns.records import read_changes
from schemas.errors import Code, TopicError
from schemas.records import BARRIER_HEADER, Op
from schemas.table import Column
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of

_CHANGE = {Op.INSERT: 1, Op.DELETE: -1, Op.UPDATE: 0}
_MODULUS = 2**64
OnRead = Callable[[int], None]
"""Called with how many more records were read."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The rows that are there, and the sum of their hashes modulo 2^64."""

    rows: int = 0
    digest: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.rows + other.rows, (self.digest + other.digest) % _MODULUS)


def last_common_epoch(settings: KafkaSettings, topic: str) -> int:
    """The last barrier that every partition has, of a topic with its barriers in the data.

    Raises: TopicError(NO_BARRIERS) where a partition has none.
    """
    epochs = []
    with RangeReader(settings) as reader:
        partitions = range(len(reader.watermarks(topic)))
        looks = reader.look_back(topic, partitions, lambda each: _epoch(each) is not None)
        for partition, (last, _) in looks.items():
            if last is None:
                where, expected = (
                    f"{topic}-{partition}",
                    "one in each partition, up to which changes are added up",
                )
                raise TopicError(Code.NO_BARRIERS, where=where, found="no barrier", expected=expected)
            epochs.append(_epoch(last) or 0)
    return min(epochs)


def totals(
    settings: KafkaSettings,
    topic: str,
    columns: Sequence[Column],
    counted: Sequence[str],
    until: int,
    on_read: OnRead = lambda _: None,
) -> Totals:
    """The totals of a topic of the format `change`, from its beginning to the barrier `until` in each partition.

    `columns` are those of its rows, `counted` those that count, by name. Raises: ValueError for a record that is
    not as the service writes them; TopicError, EnvironmentProblem.
    """
    found = Totals()
    with RangeReader(settings) as reader:
        for partition, marks in enumerate(reader.watermarks(topic)):
            for chunk in reader.read(topic, {partition: (marks.earliest, marks.stable)}):
                end = _end(chunk, until)
                found += _added_up(chunk[:end], columns, counted)
                on_read(len(chunk))
                if end < len(chunk):
                    break
    return found


def _epoch(message: Message) -> int | None:
    header = header_of(message, BARRIER_HEADER)
    return None if header is None else int(header)


def _end(chunk: Sequence[Message], until: int) -> int:
    """The place of that barrier, or the end."""
    epochs = ((place, _epoch(message)) for place, message in enumerate(chunk) if message.headers())
    return next((place for place, epoch in epochs if epoch is not None and epoch >= until), len(chunk))


def _added_up(chunk: Sequence[Message], columns: Sequence[Column], counted: Sequence[str]) -> Totals:
    values: list[Any] = [message.value() for message in chunk if not message.headers()]
    if not values:
        return Totals()
    ops, before, after, marked = read_changes(columns, pa.array(values, pa.binary()))
    if marked.any():
        raise ValueError(f"{np.count_nonzero(marked)} records that are not as the service writes them")
    rows = sum(sign * int(np.count_nonzero(ops.to_numpy() == op)) for op, sign in _CHANGE.items())
    digest = _digest(after, columns, counted) - _digest(before, columns, counted)
    return Totals(rows, digest % _MODULUS)


def _digest(half: pa.StructArray, columns: Sequence[Column], counted: Sequence[str]) -> int:
    """The sum of the hashes of the rows that are there."""
    rows = half.filter(half.is_valid())
    if not len(rows):
        return 0
    declared = [column for column in columns if column.name in counted]
    texts = encode_records(len(rows), (declared, [rows.field(column.name) for column in declared]))
    return sum(map(xxh3_64_intdigest, texts.to_pylist()))
