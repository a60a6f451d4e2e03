"""Barriers of the service's own injector: known the moment they are committed, and not looked for.

Found by reading the stream, they would be known later: Spark polls the topic, plans a micro-batch, and a job filters
its records. The injector knows the offsets of its copies, and the barriers form a chain: where one follows the newest
that is known (`prev`), there is none between them. Where it does not (others came before it at a start, the answer to a
commit was lost, another injector wrote one) the records up to it are looked through.
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
"""One offset for each partition."""


class Announcements:
    """A queue of barriers from the injector's thread to the stream's. Safe for both."""

    def __init__(self) -> None:
        self._queue: deque[AlignedBarrier] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, barrier: AlignedBarrier) -> None:
        """Announce a barrier that is committed; its ends are right behind its copies."""
        with self._changed:
            self._queue.append(barrier)
            self._changed.notify_all()

    def take(self) -> list[AlignedBarrier]:
        """Wait for barriers and take all there are, in order; none once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            taken = [] if self._closed else list(self._queue)
            self._queue.clear()
            return taken

    @property
    def has_news(self) -> bool:
        """Whether there are barriers to take."""
        return bool(self._queue)

    def close(self) -> None:
        """End all waiting; idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def closed_within(self, timeout_s: float) -> bool:
        """Wait up to this long for `close`; whether it came."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, timeout_s)


class OwnBarriers:
    """The announced barriers, and those before them that were not announced.

    `aligner` has been fed with what is before `first`. `stable` gives the last stable offset of each partition now.
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
        for announced in self._announcements.take():
            end = tuple(map(max, self._known_to, announced.ends))
            if end != self._known_to and self._await_stable(end):
                yield from self._up_to(announced, end)
                self._known_to = end

    def _await_stable(self, end: Offsets) -> bool:
        """Wait until committed readers get to `end`: other transactions may still be open. False: closed meanwhile."""
        pauses_s = stable_pauses_s()
        while any(stable < wanted for stable, wanted in zip(self._stable(), end, strict=True)):
            if self._announcements.closed_within(next(pauses_s)):
                return False
        return True

    def _up_to(self, announced: AlignedBarrier, end: Offsets) -> Iterator[FoundBarrier]:
        if self._follows(announced):
            # The injector's copy is the last record before the end.
            return (FoundBarrier(p, stop - 1, announced.barrier) for p, stop in enumerate(announced.ends))
        return self._source.barriers(self._source.range(self._known_to, end))

    def _follows(self, announced: AlignedBarrier) -> bool:
        newest = (barrier.curr if barrier else 0 for barrier, _ in self._aligner.newest())
        return all(curr == announced.barrier.prev for curr in newest)
