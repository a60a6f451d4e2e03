"""Work in parallel with batches, one piece at a time of each kind, in a thread of its own; such as deleting barriers.

Failed work is tried again, after a delay that doubles with each failure in a row. Batches go on meanwhile, only slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import structlog

from schemas.errors import BackfillError, Code
from state.storage import now_ms
from state.values.plan import BatchPlan
from streaming.kafka.barriers import BarrierCut
from streaming.sink.protocol import SinkOf
from streaming.source.barriers.source import BarrierSource

FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 600.0
_ADVICE = "look up why the broker refuses it (the right to delete records); the topics grow meanwhile"

Result = TypeVar("Result")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The state of one kind of work, for people.

    `running_s`: seconds since it began, None if none is under way. `failures` are those in a row, `error` is the last
    one's code or type.
    """

    work: str
    running_s: float | None
    failures: int
    error: str | None
    again_in_s: float
    next_step: str


class Turn(Generic[Result]):
    """Runs one kind of work in a thread of its own; all methods but `maintenance` belong to one thread.

    `advice` is the operator's next step when the work fails.
    """

    def __init__(self, work: str, advice: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._work, self._advice, self._now_s = work, advice, now_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=work.replace(" ", "-"))
        self._running: Future[Result] | None = None
        self._failures, self._error = 0, ""
        self._began_s = self._not_before_s = now_s()
        self._began_ms = 0

    @property
    def is_running(self) -> bool:
        """True if there is work whose result was not taken yet."""
        return self._running is not None

    @property
    def is_free(self) -> bool:
        """True if work may begin: none is under way, and the delay after the last failure is over."""
        return self._running is None and self._now_s() >= self._not_before_s

    @property
    def began_ms(self) -> int | None:
        """The start of the work under way, Unix milliseconds, or None."""
        return self._began_ms if self.is_running else None

    def maintenance(self) -> Maintenance:
        """The current state. For any thread."""
        now_s, failures = self._now_s(), self._failures
        return Maintenance(
            self._work,
            now_s - self._began_s if self.is_running else None,
            failures,
            self._error if failures else None,
            max(0.0, self._not_before_s - now_s),
            self._advice,
        )

    def begin(self, work: Callable[[], Result]) -> None:
        """Start `work`. Only when `is_free`."""
        assert self._running is None
        self._began_ms, self._began_s = now_ms(), self._now_s()
        self._running = self._thread.submit(work)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the work under way, if any, is done."""
        if self._running is not None:
            wait([self._running], timeout_s)

    def take(self) -> Result | None:
        """The result of work that is done, once. None when there is none, or it failed: that is logged then."""
        if self._running is None or not self._running.done():
            return None
        done, self._running = self._running, None
        try:
            result = done.result()
        except CancelledError:
            return None
        except Exception as failure:  # noqa: BLE001  # batches go on without; a lasting error shows there as well
            self._failed(failure)
            return None
        self._failures = 0
        return result

    def _failed(self, failure: Exception) -> None:
        self._error = str(failure.code) if isinstance(failure, BackfillError) else type(failure).__name__
        self._failures += 1
        delay_s = min(FIRST_DELAY_S * 2.0 ** (self._failures - 1), LONGEST_DELAY_S)
        self._not_before_s = self._now_s() + delay_s
        log.warning(
            "maintenance failed, to be tried again",
            work=self._work,
            error=self._error,
            failures=self._failures,
            again_in_s=delay_s,
            next_step=self._advice,
        )

    def close(self) -> None:
        """Release the thread, without waiting for the work under way."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class BarrierKeeping:
    """Deletes the old barriers of one service in separate topics, behind finished batches.

    Only the owner of the state deletes, and only barriers that no recovery needs: those before the last finished batch
    that are older than the configured time. A state restored from an older copy finds the intervals before the oldest
    barrier as one. All topics of a service then begin with the same barrier, unless one refuses the deletion. `keep_ms`
    None: barriers are kept for ever.
    """

    def __init__(
        self, keep_ms: int | None, sink_of: SinkOf, source: BarrierSource, is_ours: Callable[[], bool]
    ) -> None:
        self._keep_ms, self._sink_of, self._source, self._is_ours = keep_ms, sink_of, source, is_ours
        self._refused: dict[str, Code] = {}
        self._due: BatchPlan | None = None
        self._turn = Turn[None]("deletion of barriers", _ADVICE)

    def maintenance(self) -> tuple[Maintenance, ...]:
        """The state of the deletion. A topic that refused it counts as a failure for as long as this instance runs."""
        now = self._turn.maintenance()
        if self._refused:
            error = ", ".join(f"{code} of {topic}" for topic, code in sorted(self._refused.items()))
            now = replace(now, failures=max(1, now.failures), error=error)
        return (now,)

    def after_batch(self, plan: BatchPlan) -> None:
        """Call it after each finished batch: once a period barriers are deleted, by a thread of its own."""
        self._turn.take()
        if plan.has_full:
            # Kept while another deletion is under way, as the next full barrier is half an hour off.
            self._due = plan
        if self._due is not None and self._turn.is_free:
            self._turn.begin(partial(self.delete, self._due))
            self._due = None

    def close(self) -> None:
        """Begin no further deletion; one under way may still be done."""
        self._turn.close()

    def delete(self, plan: BatchPlan) -> None:
        """Delete old barriers once this plan is done: first those of outputs, so that the upstream begins no later.

        Raises: EnvironmentProblem(BROKER_UNREACHABLE).
        """
        cut = self.cut(plan)
        if cut is None or not self._is_ours():
            return
        for topic, delete in self._topics(plan, cut):
            if topic not in self._refused:
                self._delete_in(topic, delete)

    def cut(self, plan: BatchPlan) -> BarrierCut | None:
        """The newest barrier that topics may begin with: before this batch, which is the last finished one."""
        if self._keep_ms is None or plan.start is None:
            return None
        return BarrierCut(plan.start.epoch, plan.end.barrier.injected_at_ms - self._keep_ms)

    def _topics(self, plan: BatchPlan, cut: BarrierCut) -> Iterator[tuple[str, Callable[[], int]]]:
        for job in plan.jobs:
            definition = job.state.definition
            if definition.barrier_topic is not None:
                sink = self._sink_of(definition)
                yield definition.barrier_topic, partial(sink.delete_barriers, definition, cut)
        yield "the upstream's barriers", partial(self._source.delete_barriers, cut)

    def _delete_in(self, topic: str, delete: Callable[[], int]) -> None:
        try:
            count = delete()
        except BackfillError as error:
            if error.code is Code.BROKER_UNREACHABLE:
                raise
            self._refused[topic] = error.code
            log.warning(
                "barriers_not_deleted", topic=topic, code=error.code, found=error.found, next_step=_ADVICE
            )
        else:
            if count:
                log.info("barriers_deleted", topic=topic, offsets=count)
