"""What sources have in common whose barriers the service's own injector writes, wherever they stand."""

from __future__ import annotations

from typing import Protocol

from schemas.errors import BackfillError
from streaming.source.barriers.source import BarrierSource


class Injecting(Protocol):
    """What writes barriers, as `BarrierInjector`."""

    hindrance: BackfillError | None

    def start(self) -> None: ...  # noqa: D102

    def hasten(self) -> None: ...  # noqa: D102

    def check(self) -> None: ...  # noqa: D102

    def stop(self) -> None: ...  # noqa: D102


class WithInjector(BarrierSource):
    """To be inherited from before the source that finds the barriers."""

    _injector: Injecting

    @property
    def hindrance(self) -> BackfillError | None:
        """What keeps the injector."""
        return self._injector.hindrance

    def start(self) -> None:
        """Raises: as `BarrierInjector.start`."""
        self._injector.start()

    def hasten(self) -> None:
        """As `BarrierInjector.hasten`."""
        self._injector.hasten()

    def check(self) -> None:
        """Raises: as `BarrierInjector.check`."""
        self._injector.check()

    def close(self) -> None:
        """As `BarrierSource.close`."""
        super().close()
        self._injector.stop()
