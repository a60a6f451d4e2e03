"""The part common to sources whose barriers the service's own injector writes, in the data or beside it."""

from __future__ import annotations

from typing import Protocol

from schemas.epoch import NO_EPOCH
from schemas.errors import BackfillError
from schemas.records import Barrier
from streaming.source.barriers.source import BarrierSource


class Injecting(Protocol):
    """The part of `BarrierInjector` that a source needs."""

    hindrance: BackfillError | None

    @property
    def last_barrier(self) -> Barrier | None: ...

    def start(self) -> None: ...

    def hasten(self, after: int) -> None: ...

    def check(self) -> None: ...

    def stop(self) -> None: ...


class WithInjector(BarrierSource):
    """A mix-in: inherit from it before the source that finds the barriers, and set `_injector`."""

    _injector: Injecting

    @property
    def hindrance(self) -> BackfillError | None:
        """As `BarrierInjector.hindrance`."""
        return self._injector.hindrance

    @property
    def untaken(self) -> int:
        """As `BarrierSource.untaken`; the newest barrier of the injector counts until it is read in every partition."""
        last = self._injector.last_barrier
        read = [barrier.curr if barrier else NO_EPOCH for barrier, _ in self.newest()]
        return max(super().untaken, int(last is not None and any(epoch < last.curr for epoch in read)))

    def start(self) -> None:
        """Raises: as `BarrierInjector.start`."""
        self._injector.start()

    def hasten(self, after: int) -> None:
        """As `BarrierInjector.hasten`."""
        self._injector.hasten(after)

    def check(self) -> None:
        """Raises: as `BarrierInjector.check`."""
        self._injector.check()

    def close(self) -> None:
        """As `BarrierSource.close`."""
        super().close()
        self._injector.stop()
