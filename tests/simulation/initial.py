"""A table that a history starts from, in memory: read by the service's own copy, one part after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from schemas.records import Row
from schemas.table import TableSchema
from state.initial.table import SourcePart
from streaming.service.initial.copying import SparkWorkers
from tests.simulation.scheduler import Scheduler

Part = TypeVar("Part")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MemoryPart(SourcePart):
    """Some rows."""

    content: tuple[Row, ...] = ()

    def read(self, table: TableSchema) -> Iterator[pa.Table]:
        yield rows_as(self.content, table)


@dataclass(frozen=True)
class MemorySource:
    """In the place of `SourceTable`: the rows of a table, and the offsets of the topic that it is as of."""

    offsets: tuple[int, ...]
    content: tuple[Row, ...] = field(repr=False)
    uri: str = "memory"
    version: int = 0

    @property
    def rows(self) -> int:
        return len(self.content)

    def parts(self, most_rows: int) -> list[SourcePart]:
        return [
            MemoryPart(self.uri, self.version, None, self.content[first : first + most_rows])
            for first in range(0, len(self.content), most_rows)
        ]


def rows_as(rows: Sequence[Row], table: TableSchema) -> pa.Table:
    """Rows as Arrow columns."""
    schema = pa.schema([(column.name, column.type.arrow) for column in table.columns])
    columns = {name: [row[i] for row in rows] for i, name in enumerate(table.column_names)}
    return pa.table(columns, schema=schema)


class SimulatedWorkers(SparkWorkers):
    """One after another; others run in between."""

    slots = 1

    def __init__(self, scheduler: Scheduler) -> None:
        object.__setattr__(self, "scheduler", scheduler)

    scheduler: Scheduler

    def each(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        self.scheduler.step("copy a part")
        return [work(part) for part in parts]
