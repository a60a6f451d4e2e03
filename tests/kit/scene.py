"""A scene: one upstream, one service with one job, and the verdict on its output."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

from schemas.codec import ChangeCodec, KeyCodec, decode_barrier
from schemas.job import JobDefinition
from schemas.position import Key
from schemas.records import Barrier, Mutation, Row
from schemas.table import TableSchema, declare
from state.progress import Progress
from streaming.verify.findings import Report
from streaming.verify.history import Entry
from tests.kit.pure import ALL, PureService, vnode_of
from tests.kit.upstream import Upstream

MOST_STEPS = 2_000
COLUMNS = {"id": "bigint", "n": "int", "v": "string"}


def table(
    columns: dict[str, str] | None = None, key: Sequence[str] = ("id",), vnode_count: int = 2, **more: Any
) -> TableSchema:
    """A table `t`; unless columns are given its rows are (id, n, v)."""
    declared = {"name": "t", "columns": columns or COLUMNS, "primary_key": list(key), **more}
    return declare({**declared, "vnode_count": vnode_count})


def items(ids: Iterable[int], n: int = 0) -> list[Row]:
    """Rows of the default table."""
    return [(id_, n, f"item {id_}") for id_ in ids]


def ids_of(schema: TableSchema, vnode: int, behind: int = 0) -> Iterator[int]:
    """The ids of a vnode in rising order, without end."""
    return (id_ for id_ in count(behind + 1) if vnode_of(schema, (id_,)) == vnode)


def some(ids: Iterator[int], number: int) -> list[int]:
    return list(islice(ids, number))


class Scene:
    """The job `copy` into topic `out` starts at the first barrier, behind `rows`."""

    def __init__(
        self,
        folder: Path,
        rows: Iterable[Row] = (),
        *,
        table: TableSchema = table(),  # noqa: B008 (a value)
        partitions: int = 2,
        lanes: int = 1,
        **job: Any,
    ) -> None:
        self.table = table
        self.up = Upstream(table, partitions)
        definition = JobDefinition.declare(
            {"name": "copy", "output": "out", "output_partitions": 1} | job, table
        )
        self.service = PureService(table, self.up.topic, folder, [definition], lanes=lanes)
        self.up.put_all(rows)
        self.step()

    def step(self, rows: int = ALL, mutation: Mutation | None = None) -> None:
        """A barrier, and everything that it allows, with a budget of snapshot rows."""
        self.service.step(self.up, rows, mutation)

    @property
    def progress(self) -> list[Progress | None]:
        """Of each vnode; None where nothing was told yet."""
        known = self.service.progress["copy"]
        return [known.get(vnode) for vnode in range(self.table.vnode_count)]

    @property
    def states(self) -> list[str]:
        return ["NotStarted" if state is None else type(state).__name__ for state in self.progress]

    def sent(self) -> list[tuple[str, Key]]:
        """Op and key of what the last interval sent."""
        return [record for partition in self.intervals() for record in partition[-1]]

    def intervals(self) -> list[list[list[tuple[str, Key]]]]:
        """Of each output partition, its intervals, each as ops and keys."""
        return [self._intervals(entries) for entries in self.service.outputs["out"].partitions]

    def _intervals(self, entries: Sequence[Entry]) -> list[list[tuple[str, Key]]]:
        job = self.service.every["out"]
        changes, keys = ChangeCodec(self.table.select(job.columns)), KeyCodec(self.table.key_columns)
        intervals: list[list[tuple[str, Key]]] = [[]]
        for entry in entries:
            if entry.barrier is not None:
                intervals.append([])
            else:
                op = changes.decode(entry.value or b"").op.name
                intervals[-1].append((op, keys.decode(entry.key or b"")))
        assert intervals.pop() == [], "a barrier comes last"
        return intervals

    def barriers(self, partition: int = 0) -> list[Barrier]:
        """The barriers of an output partition."""
        entries = self.service.outputs["out"].partitions[partition]
        return [decode_barrier(e.barrier, e.value, where="out") for e in entries if e.barrier is not None]

    def lawful(self, output: str = "out", *, complete: bool = False) -> Report:
        """The law holds at every barrier so far."""
        report = self.service.judged(output, complete=complete)
        assert report.clean, report.findings[:3]
        return report

    def finish(self, rows: int = ALL) -> Report:
        """Barriers until all is read, and one more; then the law held at every one of them."""
        for _ in range(MOST_STEPS):
            self.step(rows)
            if self.service.is_complete():
                break
        self.step(rows)
        report = self.lawful(complete=True)
        assert report.behind == 0
        return report


def churn(up: Upstream, rows: Sequence[Row], changes: int, chance: random.Random) -> None:
    """Legal changes of keys that some rows have: the rows are the values to choose from."""
    for _ in range(changes):
        row = chance.choice(rows)
        key = up.table.key_of(row)
        if key in up.rows and chance.random() < 0.4:
            up.delete(*key)
        else:
            up.put(row)
