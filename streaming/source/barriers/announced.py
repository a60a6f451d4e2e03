"""Barriers of the service's own injector: known the moment they are committed, and not looked for.

Whoever reads them from the stream learns of them a while later: Spark asks the topic for news, plans a micro-batch, and
a job looks through its records. The injector knows where its copies went, and the barriers form a chain: where one
follows the newest that is known (`prev`), there is none between them. Where it does not (others came before it at a
start, the answer to a commit was lost, somebody else injected one) the records up to it are looked through.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from state.values.plan import AlignedBarrier
from streaming.core.alignment import Aligner
from streaming.kafka.consumer import stable_pauses_s
from streaming.source.barriers.found import FoundBarrier
from streaming.source.barriers.source import Records

Offsets = tuple[int, ...]
"""One of each partition."""


class Announcements:
    """Barriers on their way from the injector's thread to the stream's."""

    def __init__(self) -> None:
        self._told: deque[AlignedBarrier] = deque()
        self._news = threading.Condition()
        self._closed = False

    def put(self, barrier: AlignedBarrier) -> None:
        """Tell a barrier that is committed; its ends are right behind its copies."""
        with self._news:
            self._told.append(barrier)
            self._news.notify_all()

    def take(self) -> list[AlignedBarrier]:
        """Wait for news and take all there are, in order; none once it is closed."""
        with self._news:
            self._news.wait_for(lambda: self._told or self._closed)
            taken = [] if self._closed else list(self._told)
            self._told.clear()
            return taken

    @property
    def has_news(self) -> bool:
        """Whether something was told that nobody has taken."""
        return bool(self._told)

    def close(self) -> None:
        """Let nobody wait any longer."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def closed_within(self, timeout_s: float) -> bool:
        """Wait for the close, for so long."""
        with self._news:
            return self._news.wait_for(lambda: self._closed, timeout_s)


class OwnBarriers:
    """The barriers that `announcements` tells, and what came before them unannounced.

    `aligner` has been fed with what is before `first`. `stable` tells up to where committed readers get now.
    """

    def __init__(
        self,
        announcements: Announcements,
        source: Records,
        aligner: Aligner,
        first: Sequence[int],
        stable: Callable[[], Sequence[int]],
    ) -> None:
        self._announcements, self._source, self._aligner = announcements, source, aligner
        self._known_to: Offsets = tuple(first)
        self._stable = stable

    def barriers(self) -> Iterator[FoundBarrier]:
        """Wait for the next barriers; none once the announcements are closed.

        Feed each to the aligner before asking for the next. Raises: as `UpstreamSource.barriers`.
        """
        for told in self._announcements.take():
            end = tuple(map(max, self._known_to, told.ends))
            if end != self._known_to and self._await_stable(end):
                yield from self._up_to(told, end)
                self._known_to = end

    def _await_stable(self, end: Offsets) -> bool:
        """Others' transactions, and markers of the barrier's own, may end a little later. False: closed meanwhile."""
        pauses_s = stable_pauses_s()
        while any(stable < wanted for stable, wanted in zip(self._stable(), end, strict=True)):
            if self._announcements.closed_within(next(pauses_s)):
                return False
        return True

    def _up_to(self, told: AlignedBarrier, end: Offsets) -> Iterator[FoundBarrier]:
        if self._follows(told):
            # The injector's copy is the last record before the end.
            return (FoundBarrier(p, stop - 1, told.barrier) for p, stop in enumerate(told.ends))
        return self._source.barriers(self._source.range(self._known_to, end))

    def _follows(self, told: AlignedBarrier) -> bool:
        newest = (barrier.curr if barrier else 0 for barrier, _ in self._aligner.newest())
        return all(curr == told.barrier.prev for curr in newest)
