"""Upstreams without rows before, and the lanes' stores: what a machine keeps of rows while processes come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from schemas.avro.columnar import encode_inserts
from schemas.formats.change import ChangeFormat
from schemas.formats.protocol import Images
from schemas.table import TableSchema
from streaming.lane.before.normal import Written
from streaming.lane.before.store import RowStore, View
from tests.simulation.scheduler import Scheduler


class AfterOnly(ChangeFormat):
    """Changes of which lanes get the rows after, and the keys of deletes."""

    @property
    def images(self) -> Images:
        return Images.AFTER_ONLY


@dataclass
class File:
    """A store: its epoch, and its values by key. `is_made`: an instance is making it anew."""

    epoch: int | None = None
    values: dict[bytes, bytes] = field(default_factory=dict)
    is_made: bool = False


@dataclass
class Disk:
    """The stores by name. One that is gone lives on for those who have it open, and the name gets another one."""

    stores: dict[str, File] = field(default_factory=dict)

    def copy(self) -> Disk:
        return Disk({name: File(file.epoch, dict(file.values)) for name, file in self.stores.items()})


class SimulatedStore(RowStore):
    """Each call is a step, before which others may run; what it does is done at once, as by a transaction."""

    def __init__(self, disk: Disk, name: str, table: TableSchema, scheduler: Scheduler) -> None:
        self._name, self._table, self._scheduler = name, table, scheduler
        if scheduler.outcome(f"rows {name}", "there", "gone") == "gone":
            disk.stores.pop(name, None)
        self._file = disk.stores.setdefault(name, File())

    @property
    def epoch(self) -> int | None:
        return self._file.epoch

    def write(self, rows: Written, *, after: int | None, epoch: int) -> bool:
        self._scheduler.step(f"write rows {self._name}")
        file = self._file
        if file.epoch != after:
            return False
        gone = set(rows.gone.to_pylist())
        kept = {key: value for key, value in file.values.items() if key not in gone}
        file.epoch, file.values = epoch, kept | self._values(rows)
        return True

    def _values(self, rows: Written) -> dict[bytes, bytes]:
        values = encode_inserts(self._table.columns, rows.columns).to_pylist()
        return dict(zip(rows.keys.to_pylist(), values, strict=True))

    def clear(self) -> None:
        self._scheduler.step(f"clear rows {self._name}")
        self._file.epoch, self._file.values = None, {}

    def fill(self, rows: Written) -> None:
        self._scheduler.step(f"fill rows {self._name}")
        self._file.values = self._file.values | self._values(rows)

    @contextmanager
    def at(self, epoch: int | None) -> Iterator[View | None]:
        found = self._file.values
        yield (
            (lambda keys: [found.get(key) for key in keys.to_pylist()]) if self._file.epoch == epoch else None
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        file = self._file
        self._scheduler.step(f"make rows {self._name}", lambda: not file.is_made)
        file.is_made = True
        try:
            yield
        finally:  # whatever ends the process
            file.is_made = False

    def close(self) -> None:
        return
