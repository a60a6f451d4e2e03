"""Upstreams without rows before, and the lanes' stores: what a machine keeps of rows while processes come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from schemas.avro.columnar import encode_inserts
from schemas.formats.change import ChangeFormat
from schemas.formats.protocol import Images
from schemas.table import TableSchema
from streaming.lane.before.normal import Written
from streaming.lane.before.store import RowStore, Values, View
from tests.simulation.scheduler import Scheduler


class AfterOnly(ChangeFormat):
    """Changes of which lanes get the rows after, and the keys of deletes."""

    @property
    def images(self) -> Images:
        return Images.AFTER_ONLY


@dataclass
class Disk:
    """By a store's name, its epoch and its values by key; `making` are those that are made anew by somebody now."""

    stores: dict[str, tuple[int | None, dict[bytes, bytes]]] = field(default_factory=dict)
    making: set[str] = field(default_factory=set)

    def copy(self) -> Disk:
        return Disk(dict(self.stores))


class SimulatedStore(RowStore):
    """Each call is a step, before which others may run; what it does is done at once, as by a transaction."""

    def __init__(self, disk: Disk, name: str, table: TableSchema, scheduler: Scheduler) -> None:
        self._disk, self._name, self._table, self._scheduler = disk, name, table, scheduler
        if scheduler.outcome(f"rows {name}", "there", "gone") == "gone":
            disk.stores.pop(name, None)

    @property
    def _now(self) -> tuple[int | None, dict[bytes, bytes]]:
        return self._disk.stores.get(self._name, (None, {}))

    @property
    def epoch(self) -> int | None:
        return self._now[0]

    def write(self, rows: Written, *, after: int | None, epoch: int) -> bool:
        self._scheduler.step(f"write rows {self._name}")
        at, values = self._now
        if at != after:
            return False
        gone = set(rows.gone.to_pylist())
        kept = {key: value for key, value in values.items() if key not in gone}
        self._disk.stores[self._name] = epoch, kept | self._values(rows)
        return True

    def _values(self, rows: Written) -> dict[bytes, bytes]:
        values = encode_inserts(self._table.columns, rows.columns).to_pylist()
        return dict(zip(rows.keys.to_pylist(), values, strict=True))

    def clear(self) -> None:
        self._scheduler.step(f"clear rows {self._name}")
        self._disk.stores[self._name] = None, {}

    def fill(self, rows: Written) -> None:
        self._scheduler.step(f"fill rows {self._name}")
        at, values = self._now
        self._disk.stores[self._name] = at, values | self._values(rows)

    @contextmanager
    def at(self, epoch: int | None) -> Iterator[View | None]:
        at, values = self._now
        yield _Values(values) if at == epoch else None

    @contextmanager
    def alone(self) -> Iterator[None]:
        making = self._disk.making
        self._scheduler.step(f"make rows {self._name}", lambda: self._name not in making)
        making.add(self._name)
        try:
            yield
        finally:  # whatever ends the process
            making.discard(self._name)

    def close(self) -> None:
        return


@dataclass
class _Values:
    found: dict[bytes, bytes]

    def values(self, keys: pa.Array) -> Values:
        return [self.found.get(key) for key in keys.to_pylist()]
