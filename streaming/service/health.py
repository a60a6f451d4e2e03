"""Checks of the upstream beside the batches, every few seconds: whether it is still the same, and how far it goes.

Less often: for how long it keeps what was not read yet. The checks have a thread of their own, for the broker may be
slow to answer or away, which is one of the things that they find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, Self

from schemas.errors import EnvironmentProblem
from schemas.formats.names.lost import FieldsSeen
from streaming.kafka.topics import Watermarks
from streaming.runtime.periodic import repeated
from streaming.service.vitals import Vitals
from streaming.source.retention import Margin

_EVERY_S = 5.0
_LOOKS_UNTIL_LATE = 6
_END_WITHIN_S = 3.0


class Looking(Protocol):
    """The part of `UpstreamGuard` that is used here."""

    def look(self, next_offsets: Sequence[int]) -> tuple[Watermarks, ...]: ...  # noqa: D102

    def margins(  # noqa: D102
        self, marks: Sequence[Watermarks], next_offsets: Sequence[int]
    ) -> tuple[Margin, ...]: ...


class LooksAtFields(Protocol):
    """As `NewestRows`."""

    def look(self, marks: Sequence[Watermarks]) -> FieldsSeen: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


class Watch:
    """Checks the upstream of one run while `running` is open. Call `check` often: it raises what was found."""

    def __init__(self, guard: Looking, vitals: Vitals, fields: LooksAtFields | None = None) -> None:
        self._guard, self._vitals, self._fields = guard, vitals, fields
        self.next_offsets: Callable[[], Sequence[int]] = tuple
        """What the batches have yet to handle, of each partition; none while the service has not recovered."""
        self._every_s = min(_EVERY_S, vitals.late_s / _LOOKS_UNTIL_LATE)
        self.failure: Exception | None = None

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Checks are made while the block runs."""
        try:
            with repeated(self._step, self._every_s, name="watch", end_within_s=_END_WITHIN_S):
                yield self
        finally:
            if self._fields is not None:
                self._fields.close()

    def check(self) -> None:
        """Log a condition that has changed. Raises what a look has found, as `UpstreamGuard.look`."""
        self._vitals.look()
        if self.failure is not None:
            raise self.failure

    def _step(self) -> bool:
        try:
            self._look()
        except Exception as failure:  # noqa: BLE001  # whatever it is, `check` raises it
            self.failure = failure
            return False
        self._vitals.look()
        return True

    def _look(self) -> None:
        try:
            next_offsets = self.next_offsets()
            marks = self._guard.look(next_offsets)
            margins = self._guard.margins(marks, next_offsets)
        except EnvironmentProblem as problem:
            self._vitals.broker_away(problem)
        else:
            self._vitals.broker_answers(marks, margins)
            if self._fields is not None:
                self._vitals.fields = self._fields.look(marks)
